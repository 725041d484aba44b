// SPDX-License-Identifier: Apache-2.0
#include "python/convert.h"

#include <fmt/format.h>

#include <cstring>

namespace sluice {
namespace {

struct Errors {  // set by the package when it is loaded
  PyObject* error = PyExc_RuntimeError;
  PyObject* config = PyExc_ValueError;
};

PyObject* python_type(const Errors& errors, Code code) {
  switch (code) {
    case Code::value: return PyExc_ValueError;
    case Code::type: return PyExc_TypeError;
    case Code::index: return PyExc_IndexError;
    case Code::not_found: return PyExc_KeyError;
    case Code::io: return PyExc_OSError;
    case Code::usage: return errors.config;
    case Code::cancelled: return PyExc_KeyboardInterrupt;
    case Code::failed: break;
  }
  return errors.error;
}

void raise(const Errors& errors, const Error& error) {
  nb::handle type(python_type(errors, error.code()));
  nb::object instance = type(nb::str(error.what()));
  instance.attr("place") = nb::make_tuple(error.place().file, error.place().line);
  instance.attr("next") = nb::str(error.next().c_str());
  PyErr_SetObject(type.ptr(), instance.ptr());
}

DType dtype_of_array(nb::dlpack::dtype dtype) {
  using K = nb::dlpack::dtype_code;
  if (dtype.lanes == 1) {
    if (dtype.code == uint8_t(K::Float) && dtype.bits == 32) return DType::float32;
    if (dtype.code == uint8_t(K::Float) && dtype.bits == 64) return DType::float64;
    if (dtype.code == uint8_t(K::Float) && dtype.bits == 16) return DType::float16;
    if (dtype.code == uint8_t(K::Bfloat) && dtype.bits == 16) return DType::bfloat16;
    if (dtype.code == uint8_t(K::Int) && dtype.bits == 8) return DType::int8;
    if (dtype.code == uint8_t(K::Int) && dtype.bits == 16) return DType::int16;
    if (dtype.code == uint8_t(K::Int) && dtype.bits == 32) return DType::int32;
    if (dtype.code == uint8_t(K::Int) && dtype.bits == 64) return DType::int64;
    if (dtype.code == uint8_t(K::UInt) && dtype.bits == 8) return DType::uint8;
    if (dtype.code == uint8_t(K::Bool)) return DType::bool_;
  }
  throw Error(Code::type,
              fmt::format("an array of {} bits and kind {} has no Sluice dtype", dtype.bits, int(dtype.code)), {},
              "convert it with .astype(...) first");
}

nb::dlpack::dtype dlpack_of(DType dtype) {
  using K = nb::dlpack::dtype_code;
  K kind = is_float(dtype) ? K::Float : K::Int;
  if (dtype == DType::bfloat16) kind = K::Bfloat;
  if (dtype == DType::uint8) kind = K::UInt;
  if (dtype == DType::bool_) kind = K::Bool;
  return {uint8_t(kind), uint8_t(8 * bytes_of(dtype)), 1};
}

[[noreturn]] void wrong_kind(const OpDef& op, const AttrDef& def, nb::handle value, std::string_view want) {
  throw Error(Code::type, fmt::format("{}: '{}' must be {}, not {}", op.name, def.name, want,
                                      nb::cast<std::string>(nb::repr(value))));
}

std::optional<int64_t> as_integer(nb::handle value) {
  if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr()) || nb::isinstance<Dim>(value)) return std::nullopt;
  int64_t result = PyLong_AsLongLong(nb::steal(PyNumber_Index(value.ptr())).ptr());
  if (result == -1 && PyErr_Occurred()) throw nb::python_error();
  return result;
}

std::optional<Dim> as_dim(nb::handle value) {
  if (nb::isinstance<Dim>(value)) return nb::cast<Dim>(value);
  if (auto size = as_integer(value)) return Dim{*size};
  return std::nullopt;
}

bool is_list(nb::handle value) { return nb::isinstance<nb::tuple>(value) || nb::isinstance<nb::list>(value); }

AttrValue integers_from(const OpDef& op, const AttrDef& def, nb::handle value) {
  std::vector<int64_t> result;
  if (value.is_none()) return result;
  if (auto one = as_integer(value)) return std::vector<int64_t>{*one};
  if (!is_list(value)) wrong_kind(op, def, value, "an integer or a tuple of integers");
  for (nb::handle item : value) {
    auto one = as_integer(item);
    if (!one) wrong_kind(op, def, value, "an integer or a tuple of integers");
    result.push_back(*one);
  }
  return result;
}

AttrValue shape_from(const OpDef& op, const AttrDef& def, nb::handle value) {
  if (auto dim = as_dim(value)) return Shape{*dim};
  if (!is_list(value)) wrong_kind(op, def, value, "a shape: a tuple of integers");
  Shape shape;
  for (nb::handle item : value) {
    auto dim = as_dim(item);
    if (!dim) wrong_kind(op, def, value, "a shape: a tuple of integers");
    shape.push_back(*dim);
  }
  return shape;
}

double real_from(const OpDef& op, const AttrDef& def, nb::handle value) {
  double result = PyFloat_Check(value.ptr()) || PyNumber_Check(value.ptr()) ? PyFloat_AsDouble(value.ptr()) : -1;
  if (PyErr_Occurred())
    PyErr_Clear();
  else if (PyNumber_Check(value.ptr()))
    return result;
  wrong_kind(op, def, value, "a number");
}

AttrValue attr_from(const OpDef& op, const AttrDef& def, nb::handle value) {
  switch (def.kind) {
    case AttrDef::boolean:
      if (!nb::isinstance<nb::bool_>(value)) wrong_kind(op, def, value, "True or False");
      return nb::cast<bool>(value);
    case AttrDef::integer:
      if (auto one = as_integer(value)) return *one;
      wrong_kind(op, def, value, "an integer");
    case AttrDef::real: return real_from(op, def, value);
    case AttrDef::text:
      if (!nb::isinstance<nb::str>(value)) wrong_kind(op, def, value, "a string");
      return nb::cast<std::string>(value);
    case AttrDef::integers: return integers_from(op, def, value);
    case AttrDef::shape: return shape_from(op, def, value);
    case AttrDef::dtype:
      if (!nb::isinstance<nb::str>(value)) wrong_kind(op, def, value, "a dtype");
      return dtype_named(nb::cast<std::string>(value));
  }
  wrong_kind(op, def, value, "of a known kind");
}

}  // namespace

HostArray host_array(const AnyArray& array) {
  HostArray result;
  result.dtype = dtype_of_array(array.dtype());
  for (size_t d = 0; d < array.ndim(); ++d) result.dims.push_back(int64_t(array.shape(d)));
  if (array.ndim() > size_t(rank_max))
    throw Error(Code::value, fmt::format("an array of {} dims; at most {} are supported", array.ndim(), rank_max));
  result.data.resize(array.nbytes());
  if (array.nbytes()) std::memcpy(result.data.data(), array.data(), array.nbytes());
  return result;
}

nb::object numpy_array(const HostArrayPtr& array) {
  auto* owner = new HostArrayPtr(array);
  nb::capsule capsule(owner, [](void* p) noexcept { delete static_cast<HostArrayPtr*>(p); });
  std::vector<size_t> shape(array->dims.begin(), array->dims.end());
  nb::ndarray<nb::numpy, nb::ro> view(array->data.data(), shape.size(), shape.data(), capsule, nullptr,
                                      dlpack_of(array->dtype));
  return nb::cast(view, nb::rv_policy::reference);
}

DType dtype_named(std::string_view name) {
  if (auto dtype = parse_dtype(name)) return *dtype;
  std::string near = nearest(name, std::vector<std::string>(dtype_names.begin(), dtype_names.end()));
  throw Error(Code::type, fmt::format("there is no dtype '{}'", name), {},
              near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

LogicalType type_from(std::string_view dtype, const nb::object& dims) {
  LogicalType type{dtype_named(dtype), {}};
  for (nb::handle item : dims) {
    auto dim = as_dim(item);
    if (!dim) throw Error(Code::type, "a shape holds integers, not " + nb::cast<std::string>(nb::repr(item)));
    type.shape.push_back(*dim);
  }
  return type;
}

Attrs attrs_from(const OpDef& op, const nb::dict& values) {
  Attrs attrs;
  for (auto [key, value] : values) {
    std::string name = nb::cast<std::string>(key);
    auto def = std::find_if(op.attrs.begin(), op.attrs.end(), [&](auto& d) { return d.name == name; });
    if (def == op.attrs.end()) throw Error(Code::type, fmt::format("{} has no argument '{}'", op.name, name));
    attrs.push_back({name, attr_from(op, *def, value)});
  }
  return attrs;
}

void register_errors(nb::module_& m) {
  auto* errors = new Errors;
  m.def(
      "use_errors",
      [errors](nb::handle error, nb::handle config) {
        errors->error = error.inc_ref().ptr();
        errors->config = config.inc_ref().ptr();
      },
      nb::arg("error"), nb::arg("config"), "The exception classes for a failed run and for a wrong config.");
  nb::register_exception_translator(
      [](const std::exception_ptr& p, void* payload) {
        try {
          std::rethrow_exception(p);
        } catch (const Error& error) {
          raise(*static_cast<Errors*>(payload), error);
        }
      },
      errors);
}

}  // namespace sluice
