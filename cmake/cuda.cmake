# Where nvcc is found, the room `kernels` gets its device parts: every .cu of it, and every .cc with a part that only
# nvcc sees (`#ifdef __CUDACC__`). Of those, several go into one translation unit: parsing the headers costs nvcc more
# than a dozen ops do. Neither cuBLASLt nor a driver is linked: both are loaded when a GPU is used.
set(SLUICE_CUDA "AUTO" CACHE STRING "Device parts by nvcc: AUTO (where it is found) | ON | OFF")
set(SLUICE_CUDA_ARCHS "sm_80,sm_90,compute_80" CACHE STRING "What nvcc makes code for, from compute_80")
set(cuda_ops_in_unit 14)

find_program(SLUICE_NVCC nvcc PATHS /usr/local/cuda/bin)
if(SLUICE_CUDA STREQUAL "ON" AND NOT SLUICE_NVCC)
  message(FATAL_ERROR "SLUICE_CUDA=ON, but nvcc is not found: install NVIDIA's CUDA toolkit or set SLUICE_NVCC")
endif()
set(SLUICE_HAS_CUDA OFF)
if(SLUICE_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: off, so device 'cuda' is not in this build (SLUICE_CUDA=OFF)")
elseif(SLUICE_SANITIZE)
  message(STATUS "CUDA: off in a sanitizer's build")
elseif(NOT SLUICE_NVCC)
  message(STATUS "CUDA: no nvcc found, so device 'cuda' is not in this build")
else()
  set(SLUICE_HAS_CUDA ON)
  get_filename_component(cuda_root ${SLUICE_NVCC} REALPATH)
  get_filename_component(cuda_root ${cuda_root} DIRECTORY)
  get_filename_component(cuda_root ${cuda_root} DIRECTORY)
  find_library(SLUICE_CUDART cudart_static HINTS ${cuda_root}/lib64 ${cuda_root}/lib ${cuda_root}/targets/x86_64-linux/lib
    ${cuda_root}/targets/sbsa-linux/lib REQUIRED)
  get_filename_component(SLUICE_CUDA_LIBRARIES ${SLUICE_CUDART} DIRECTORY)
  message(STATUS "CUDA: ${SLUICE_NVCC}, code for ${SLUICE_CUDA_ARCHS}")
endif()

# One object by nvcc. No fused multiply-adds, as in the rest of the room: element-wise results are the CPU's bits.
# Paths are relative to the build's folder, so that the cache serves other build folders too.
function(sluice_nvcc source object)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/${object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${SLUICE_NVCC} -std=c++20 -ccbin ${CMAKE_CXX_COMPILER} -O2 -t1
      --expt-relaxed-constexpr -fmad=false -DFMT_USE_CONSTEXPR=1 -DSLUICE_CUDA_LIBRARIES="${SLUICE_CUDA_LIBRARIES}"
      "-gencode=arch=compute_80,code=[${SLUICE_CUDA_ARCHS}]"
      -Xcompiler=-fPIC,-Wall,-Wextra,-Wno-missing-field-initializers,-Wno-unknown-pragmas -diag-suppress=186 -Werror=all-warnings
      -I${CMAKE_SOURCE_DIR} -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${CMAKE_BINARY_DIR}/${object}.d WORKING_DIRECTORY ${CMAKE_BINARY_DIR}
    COMMENT "Building CUDA object ${object}" VERBATIM)
endfunction()

# The files of a room that have a part for nvcc, relative to the source folder: .cc files among others', and .cu files.
function(sluice_device_parts room mixed units)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${room}/*.cu)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${room}/*.cc)
  set(parts "")
  foreach(source ${sources})
    # Whether a file has such a part is asked at configure time, so a change of a file asks again.
    set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${source})
    file(STRINGS ${CMAKE_SOURCE_DIR}/${source} part REGEX "^#ifdef __CUDACC__" LIMIT_COUNT 1)
    if(part)
      list(APPEND parts ${source})
    endif()
  endforeach()
  set(${mixed} ${parts} PARENT_SCOPE)
  set(${units} ${found} PARENT_SCOPE)
endfunction()

# Sets the variable named by `result` to the objects of a room.
function(sluice_cuda_objects room result)
  set(objects "")
  if(SLUICE_HAS_CUDA)
    sluice_device_parts(${room} mixed units)
    list(TRANSFORM units PREPEND ${CMAKE_SOURCE_DIR}/)
    set(n 0)
    while(mixed)
      list(SUBLIST mixed 0 ${cuda_ops_in_unit} some)
      list(REMOVE_ITEM mixed ${some})
      list(TRANSFORM some REPLACE "(.+)" "#include \"\\1\"")
      list(JOIN some "\n" text)
      file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/cuda/ops_${n}.cu CONTENT "// Written by CMake.\n${text}\n" @ONLY)
      list(APPEND units cuda/ops_${n}.cu)
      math(EXPR n "${n} + 1")
    endwhile()
    foreach(unit ${units})
      get_filename_component(name ${unit} NAME_WE)
      sluice_nvcc(${unit} cuda/${name}.o)
      list(APPEND objects ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    endforeach()
  endif()
  set(${result} ${objects} PARENT_SCOPE)
endfunction()

# The device parts compiled for the host (kernels/device/cuda_emulation.h), for a test program: where there is no GPU
# they run all the same. Its definitions go before those of libsluice.
function(sluice_emulated_cuda result)
  sluice_device_parts(kernels mixed units)
  list(REMOVE_ITEM units kernels/device/cuda.cu)
  set(sources ${CMAKE_SOURCE_DIR}/tests/emulated_cuda.cc)
  list(TRANSFORM mixed REPLACE "(.+)" "#include \"\\1\"")
  list(JOIN mixed "\n" text)
  foreach(unit ops ${units})
    get_filename_component(name ${unit} NAME_WE)
    if(NOT unit STREQUAL "ops")
      set(text "#include \"${unit}\"")
    endif()
    set(source ${CMAKE_BINARY_DIR}/cuda/emulated_${name}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "// Written by CMake.\n${text}\n" @ONLY)
    list(APPEND sources ${source})
  endforeach()
  # As the kernels' room is compiled, and what only nvcc says of itself.
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS
    "-D__CUDACC__;-DSLUICE_EMULATE_CUDA;-Wno-unknown-pragmas;-fno-math-errno;-fno-trapping-math;-ffp-contract=off")
  set(${result} ${sources} PARENT_SCOPE)
endfunction()
