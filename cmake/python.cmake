# The Python module `_sluice`, its stub, and what the wheel holds: the package (pyproject.toml names its folder), the
# module, libsluice.so beside it, and the command `sluice`.
find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind_ROOT
  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE nanobind_missing ERROR_QUIET)
if(nanobind_missing)
  message(FATAL_ERROR "${Python_EXECUTABLE} has no nanobind: run tools/setup.sh, or configure with -DSLUICE_PYTHON=OFF")
endif()
find_package(nanobind CONFIG REQUIRED)

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/*.cc)
nanobind_add_module(_sluice NB_STATIC NOMINSIZE ${sources})
target_link_libraries(_sluice PRIVATE sluice)
target_include_directories(_sluice PRIVATE ${CMAKE_SOURCE_DIR})
set_target_properties(_sluice PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/module INSTALL_RPATH "$ORIGIN")
nanobind_add_stub(sluice_stub MODULE _sluice OUTPUT ${CMAKE_BINARY_DIR}/module/_sluice.pyi
  PYTHON_PATH ${CMAKE_BINARY_DIR}/module DEPENDS _sluice)

# The stubs of the functions and methods that the package makes from the table of ops.
file(GLOB_RECURSE package CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/sluice/*.py)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/stubs/_ops.pyi
  COMMAND ${CMAKE_COMMAND} -E env PYTHONPATH=${CMAKE_BINARY_DIR}/module PYTHONDONTWRITEBYTECODE=1
          ${Python_EXECUTABLE} ${CMAKE_SOURCE_DIR}/python/stubs.py ${CMAKE_BINARY_DIR}/stubs
  DEPENDS _sluice ${CMAKE_SOURCE_DIR}/python/stubs.py ${package} VERBATIM)
add_custom_target(sluice_op_stubs ALL DEPENDS ${CMAKE_BINARY_DIR}/stubs/_ops.pyi)

if(NOT SKBUILD_SCRIPTS_DIR)
  set(SKBUILD_SCRIPTS_DIR bin)
endif()
set(site lib/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages)
set_target_properties(sluice PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS sluice _sluice LIBRARY DESTINATION sluice COMPONENT wheel)
install(FILES ${CMAKE_BINARY_DIR}/module/_sluice.pyi DESTINATION sluice COMPONENT wheel)
install(DIRECTORY ${CMAKE_BINARY_DIR}/stubs/ DESTINATION sluice COMPONENT wheel)
if(TARGET sluice_command)
  set_target_properties(sluice_command PROPERTIES INSTALL_RPATH "$ORIGIN/../${site}/sluice")
  install(TARGETS sluice_command RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT wheel)
endif()
add_custom_target(sluice_wheel DEPENDS _sluice sluice_stub sluice_op_stubs sluice_command)  # all that is packed
