# dtrain::plugin is what a plug-in links: the headers, LibTorch, and a hash of the headers for its stamp
# (lib/models/plugins/plugin.hpp). What it calls of dtrain's own it finds in the program that opens it, which has it once.
file(GLOB_RECURSE _headers CONFIGURE_DEPENDS
  "${CMAKE_SOURCE_DIR}/lib/core/*.hpp" "${CMAKE_SOURCE_DIR}/lib/kernels/*.hpp" "${CMAKE_SOURCE_DIR}/lib/models/*.hpp")
list(SORT _headers)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_headers})
set(_hashes "")
foreach(_header IN LISTS _headers)
  file(SHA256 "${_header}" _hash)
  string(APPEND _hashes "${_hash}")
endforeach()
string(SHA256 _hashes "${_hashes}")
string(SUBSTRING "${_hashes}" 0 12 _hashes)
set(DTRAIN_PLUGIN_INTERFACE "${PROJECT_VERSION}-${_hashes}")

add_library(dtrain_plugin INTERFACE)
add_library(dtrain::plugin ALIAS dtrain_plugin)
set_target_properties(dtrain_plugin PROPERTIES EXPORT_NAME plugin)
target_compile_features(dtrain_plugin INTERFACE cxx_std_20)
target_compile_definitions(dtrain_plugin INTERFACE DTRAIN_PLUGIN_INTERFACE="${DTRAIN_PLUGIN_INTERFACE}")
target_include_directories(dtrain_plugin INTERFACE
  "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/lib>" "$<INSTALL_INTERFACE:include/dtrain>")
target_link_libraries(dtrain_plugin INTERFACE LibTorch::cpu)
