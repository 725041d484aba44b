// SPDX-License-Identifier: Apache-2.0
// Matrix products on a GPU: cuBLASLt for floats, a loop of ours for integers. cuBLASLt is loaded by the first product,
// so a machine without it (or without a GPU) runs everything else.
#ifndef SLUICE_EMULATE_CUDA
#include <cublasLt.h>
#include <dlfcn.h>
#endif

#include <array>
#include <map>

#include "kernels/device/cuda_queue.h"
#include "kernels/gemm.h"

namespace sluice {

#ifndef SLUICE_EMULATE_CUDA
// ---- the functions of cuBLASLt that are used

namespace {

#define SLUICE_TEXT(x) #x  // the library's name holds its major version, which is a macro
#define SLUICE_TEXT_OF(x) SLUICE_TEXT(x)
constexpr const char* library_name = "libcublasLt.so." SLUICE_TEXT_OF(CUBLAS_VER_MAJOR);

struct Functions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
};

template <class F>
void load(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function) throw Error(Code::failed, std::string("matmul: ") + library_name + " lacks " + name);
}

Functions load_functions() {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    library = dlopen((std::string(SLUICE_CUDA_LIBRARIES "/") + library_name).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw Error(Code::failed, std::string("matmul: cuBLASLt cannot be loaded: ") + dlerror(), {},
                "install NVIDIA's cuBLAS, or put its folder into LD_LIBRARY_PATH");
  Functions f;
  load(library, "cublasLtCreate", f.create);
  load(library, "cublasLtDestroy", f.destroy);
  load(library, "cublasLtMatmul", f.matmul);
  load(library, "cublasLtMatmulDescCreate", f.desc_create);
  load(library, "cublasLtMatmulDescDestroy", f.desc_destroy);
  load(library, "cublasLtMatmulDescSetAttribute", f.desc_set);
  load(library, "cublasLtMatrixLayoutCreate", f.layout_create);
  load(library, "cublasLtMatrixLayoutDestroy", f.layout_destroy);
  load(library, "cublasLtMatrixLayoutSetAttribute", f.layout_set);
  load(library, "cublasLtMatmulPreferenceCreate", f.preference_create);
  load(library, "cublasLtMatmulPreferenceDestroy", f.preference_destroy);
  load(library, "cublasLtMatmulPreferenceSetAttribute", f.preference_set);
  load(library, "cublasLtMatmulAlgoGetHeuristic", f.heuristic);
  return f;
}

void lt_ok(cublasStatus_t status, std::string_view what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(Code::failed,
                "matmul: cuBLASLt: " + std::string(what) + " gives status " + std::to_string(int(status)));
}

// Of the operands' addresses, in bytes: algorithms need more or less of it.
struct Alignments {
  uint32_t a, b, out;
  static uint32_t of(const void* p) { return uint32_t(std::min<uintptr_t>(uintptr_t(p) & -uintptr_t(p), 256)); }
};

// A product as cuBLASLt takes it. Its matrices are stored by columns, so ours are their transposes: it computes
// out' = b' a', where x' is what the same memory is to it.
class Product {
 public:
  Product(const Functions& f, cublasLtHandle_t handle, size_t workspace, DType dtype, const Gemm& s,
          const GemmBatch& batch, const Alignments& alignments)
      : f_(f) {
    bool single = dtype == DType::float32;
    cudaDataType_t type = single ? CUDA_R_32F : CUDA_R_64F;
    lt_ok(f.desc_create(&desc_, single ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_64F, type), "a description");
    cublasOperation_t turn_a = s.a_col ? CUBLAS_OP_T : CUBLAS_OP_N, turn_b = s.b_col ? CUBLAS_OP_T : CUBLAS_OP_N;
    lt_ok(f.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &turn_b, sizeof turn_b), "an attribute");
    lt_ok(f.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSB, &turn_a, sizeof turn_a), "an attribute");
    b_ =
        s.b_col ? layout(type, s.k, s.n, batch.count, batch.b_step) : layout(type, s.n, s.k, batch.count, batch.b_step);
    a_ =
        s.a_col ? layout(type, s.m, s.k, batch.count, batch.a_step) : layout(type, s.k, s.m, batch.count, batch.a_step);
    out_ = layout(type, s.n, s.m, batch.count, batch.out_step);
    choose(handle, workspace, alignments);
  }
  ~Product() {
    for (auto layout : {a_, b_, out_})
      if (layout) f_.layout_destroy(layout);
    if (desc_) f_.desc_destroy(desc_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void run(cublasLtHandle_t handle, CudaQueue& queue, const void* a, const void* b, void* out, DType dtype) const {
    double one64 = 1, zero64 = 0;
    float one32 = 1, zero32 = 0;
    bool single = dtype == DType::float32;
    const void *one = single ? static_cast<void*>(&one32) : &one64,
               *zero = single ? static_cast<void*>(&zero32) : &zero64;
    lt_ok(f_.matmul(handle, desc_, one, b, b_, a, a_, zero, out, out_, out, out_, &algorithm_, queue.workspace,
                    queue.workspace_bytes, queue.stream),
          "the product");
  }

 private:
  cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t count, int64_t step) {
    cublasLtMatrixLayout_t made = nullptr;
    lt_ok(f_.layout_create(&made, type, uint64_t(rows), uint64_t(columns), rows), "a layout");
    auto n = int32_t(count);
    if (n > 1) {
      lt_ok(f_.layout_set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n), "a layout");
      lt_ok(f_.layout_set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step), "a layout");
    }
    return made;
  }

  void choose(cublasLtHandle_t handle, size_t workspace, const Alignments& at) {
    cublasLtMatmulPreference_t preference = nullptr;
    lt_ok(f_.preference_create(&preference), "a preference");
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      return f_.preference_set(preference, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
    };
    bool set_all = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
                   set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, at.b) &&
                   set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, at.a) &&
                   set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, at.out) &&
                   set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, at.out);
    cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE;
    if (set_all) status = f_.heuristic(handle, desc_, b_, a_, out_, out_, preference, 1, &found, &count);
    f_.preference_destroy(preference);
    lt_ok(status, "a choice of algorithm");
    if (count == 0) lt_ok(CUBLAS_STATUS_NOT_SUPPORTED, "a choice of algorithm");
    algorithm_ = found.algo;
  }

  const Functions& f_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, out_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace

// One stream's handle and its products, each chosen once.
class CudaBlas {
 public:
  CudaBlas() : f_(load_functions()) { lt_ok(f_.create(&handle_), "a handle"); }
  ~CudaBlas() {
    products_.clear();
    f_.destroy(handle_);
  }
  CudaBlas(const CudaBlas&) = delete;
  CudaBlas& operator=(const CudaBlas&) = delete;

  void run(CudaQueue& queue, DType dtype, const Gemm& s, const GemmBatch& batch, const void* a, const void* b,
           void* out) {
    Alignments at{Alignments::of(a), Alignments::of(b), Alignments::of(out)};
    Key key{int64_t(dtype), s.m,  s.n,  s.k,   s.a_col, s.b_col, batch.count, batch.a_step, batch.b_step,
            batch.out_step, at.a, at.b, at.out};
    auto& product = products_[key];
    if (!product) product = std::make_unique<Product>(f_, handle_, queue.workspace_bytes, dtype, s, batch, at);
    product->run(handle_, queue, a, b, out, dtype);
  }

 private:
  using Key = std::array<int64_t, 13>;
  const Functions f_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, std::unique_ptr<Product>> products_;
};

#else
// Stands in for cuBLASLt where kernels are emulated: the loop below does for floats too.
class CudaBlas {};
#endif

void CudaBlasDeleter::operator()(CudaBlas* blas) const { std::default_delete<CudaBlas>{}(blas); }

namespace {

// A thread has an element. Integers are summed in their own type; they wrap.
template <class T>
__global__ void simple_product(Gemm s, GemmBatch batch, const T* a, const T* b, T* out) {
  using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  using Sum = std::conditional_t<std::is_integral_v<T>, Wrapping, T>;
  int64_t a_row = s.a_col ? 1 : s.k, a_step = s.a_col ? s.m : 1, b_row = s.b_col ? 1 : s.n, b_step = s.b_col ? s.k : 1;
  int64_t area = s.m * s.n;
  for (int64_t i = thread_index(); i < area * batch.count; i += thread_stride()) {
    int64_t matrix = i / area, row = i % area / s.n, column = i % s.n;
    const T *x = a + matrix * batch.a_step + row * a_row, *y = b + matrix * batch.b_step + column * b_step;
    Sum sum = 0;
    for (int64_t l = 0; l < s.k; ++l) sum += Sum(x[l * a_step]) * Sum(y[l * b_row]);
    out[matrix * batch.out_step + row * s.n + column] = T(sum);
  }
}

}  // namespace

void gemm_cuda(void* handle, DType dtype, const Gemm& s, const GemmBatch& batch, const void* a, const void* b,
               void* out) {
  CudaQueue& queue = *static_cast<CudaQueue*>(handle);
  int64_t n = s.m * s.n * batch.count;
  if (n == 0) return;
  if (dtype == DType::float32 || dtype == DType::float64) {
    if (s.k == 0) {
      check(batch.count == 1 || batch.out_step == s.m * s.n, "the products of a batch follow each other");
      return ok(cudaMemsetAsync(out, 0, size_t(n * bytes_of(dtype)), queue.stream), "matmul");
    }
#ifndef SLUICE_EMULATE_CUDA
    if (!queue.blas) queue.blas.reset(std::make_unique<CudaBlas>().release());
    return queue.blas->run(queue, dtype, s, batch, a, b, out);
#endif
  }
  visit_dtype(dtype, [&]<class T>(Tag<T>) {
    constexpr bool ours = std::is_integral_v<T> && !std::is_same_v<T, bool>;
    if constexpr (ours || emulated)
      launch(queue, blocks_for(queue, n), cuda_threads, simple_product<T>, s, batch, static_cast<const T*>(a),
             static_cast<const T*>(b), static_cast<T*>(out));
  });
}

}  // namespace sluice
