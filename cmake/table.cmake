# The table of one noun: every file NAME.cc of `folder` defines `extern const TYPE NAME` in namespace sluice::SPACE;
# `function` returns them all. Written from the folder listing.
function(sluice_table room folder type space function header)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/${folder} ${CMAKE_SOURCE_DIR}/${folder}/*.cc)
  set(declarations "")
  set(entries "")
  foreach(file ${files})
    if(NOT file MATCHES "_test.cc$")
      get_filename_component(name ${file} NAME_WE)
      string(APPEND declarations "extern const ${type} ${name};\n")
      string(APPEND entries "    &${space}::${name},\n")
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/tables/${function}.cc @ONLY CONTENT [[
// Written by CMake from @folder@/.
#include "@header@"
namespace sluice {
namespace @space@ {
@declarations@}
static constexpr const @type@* table_of_@function@[] = {
@entries@};
std::span<const @type@* const> @function@() { return table_of_@function@; }
}  // namespace sluice
]])
  set_property(GLOBAL APPEND PROPERTY sluice_extra_${room} ${CMAKE_BINARY_DIR}/tables/${function}.cc)
endfunction()

function(sluice_tables_of room)
  if(room STREQUAL "kernels")
    sluice_table(kernels kernels/ops OpDef ops builtin_ops kernels/op.h)
    sluice_table(kernels kernels/device DeviceDef devices builtin_devices kernels/device/device.h)
  elseif(room STREQUAL "comm")
    sluice_table(comm comm/moves MoveDef moves builtin_moves comm/move.h)
  elseif(room STREQUAL "data")
    sluice_table(data data/readers ReaderDef readers builtin_readers data/reader.h)
  elseif(room STREQUAL "protocol")
    sluice_table(protocol protocol/kinds ActorDef kinds builtin_kinds protocol/actor.h)
  elseif(room STREQUAL "planner")
    sluice_table(planner planner/passes PassDef passes builtin_passes planner/pass.h)
  endif()
endfunction()
