# Helpers that keep every target alike: its layer, its warnings, its precompiled header, its test limits.

set(DTRAIN_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined")

find_program(DTRAIN_CCACHE ccache)
if(DTRAIN_CCACHE)
  # A fresh clone elsewhere still hits: paths below the source folder count as relative.
  # INODECACHE: the 400 MB of a precompiled header are read once, not for each file that uses it.
  set(_ccache ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_INODECACHE=1
    "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 ${DTRAIN_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${_ccache})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${_ccache})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${_ccache})
endif()

# What every target of ours is compiled with; never exported.
add_library(dtrain_options INTERFACE)
target_compile_options(dtrain_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion>
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers;-fpch-preprocess>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${DTRAIN_WERROR}>>:-Werror>)
# MPI's flags have -pthread; a precompiled header serves only files compiled with the same.
target_compile_options(dtrain_options INTERFACE -pthread)
target_compile_definitions(dtrain_options INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
# A mistake that hostile input could use ends the program instead. A sanitizer finds more, and FORTIFY needs an optimiser.
if(DTRAIN_HARDEN AND NOT DTRAIN_SANITIZE)
  target_compile_definitions(dtrain_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:_GLIBCXX_ASSERTIONS>)
  target_compile_options(dtrain_options INTERFACE
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>
    $<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong;-fstack-clash-protection;-fcf-protection>)
  target_link_options(dtrain_options INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
endif()
if(DTRAIN_SANITIZE)
  target_compile_options(dtrain_options INTERFACE -fsanitize=${DTRAIN_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(dtrain_options INTERFACE -fsanitize=${DTRAIN_SANITIZE})
  # g++ 12 takes members of std::function in std::regex for uninitialised where it is instrumented (GCC bug 105562).
  target_compile_options(dtrain_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
# DT_RPATH, not RUNPATH: LD_LIBRARY_PATH of a cluster must not swap libnccl or libmpi under us.
target_link_options(dtrain_options INTERFACE -Wl,--disable-new-dtags)

# LibTorch's include folder has a newer fmt than the system's library. Every target that sees that folder links this.
add_library(dtrain_torch_fmt STATIC "${CMAKE_SOURCE_DIR}/cmake/torch_fmt.cpp")
set_target_properties(dtrain_torch_fmt PROPERTIES EXPORT_NAME torch_fmt POSITION_INDEPENDENT_CODE ON)
target_link_libraries(dtrain_torch_fmt PRIVATE $<BUILD_INTERFACE:LibTorch::cpu>)

# Two precompiled headers, shared by the targets that ask: tensors with TORCH; with TORCH_API LibTorch's C++ frontend
# too, which takes every file of the target three times as long.
function(dtrain_add_pch name header)
  add_library(dtrain_${name}_pch OBJECT "${CMAKE_SOURCE_DIR}/cmake/empty.cpp")
  target_precompile_headers(dtrain_${name}_pch PRIVATE ${header})
  target_link_libraries(dtrain_${name}_pch PRIVATE LibTorch::cpu dtrain_options)
endfunction()
dtrain_add_pch(tensor "${CMAKE_SOURCE_DIR}/cmake/tensor_pch.hpp")
dtrain_add_pch(torch_api <torch/torch.h>)

function(dtrain_use_torch target pch)
  target_link_libraries(${target} PUBLIC LibTorch::cpu PRIVATE dtrain_torch_fmt)
  target_precompile_headers(${target} REUSE_FROM dtrain_${pch}_pch)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")  # otherwise -fPIE, for which the shared header would not do
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# Headers, of which LibTorch's are most of the work, are then read once for several files.
function(dtrain_use_unity target)
  if(DTRAIN_UNITY AND NOT DTRAIN_FUZZ)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# dtrain_add_library(NAME [TORCH] SOURCES a.cpp ... PUBLIC targets ... PRIVATE targets ...)
# One lib/ folder. PUBLIC: named in our headers; PRIVATE: used only in our .cpp files. The link line is the layer rule.
function(dtrain_add_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(dtrain_${name} STATIC ${ARG_SOURCES})
  add_library(dtrain::${name} ALIAS dtrain_${name})
  target_include_directories(dtrain_${name} PUBLIC
    "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/lib>" "$<INSTALL_INTERFACE:include/dtrain>")
  target_link_libraries(dtrain_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} $<BUILD_INTERFACE:dtrain_options>)
  set_target_properties(dtrain_${name} PROPERTIES EXPORT_NAME ${name})
  if(ARG_TORCH)
    dtrain_use_torch(dtrain_${name} tensor)
  endif()
  dtrain_use_unity(dtrain_${name})
  set_property(GLOBAL APPEND PROPERTY DTRAIN_LIBRARIES ${name})
endfunction()

add_custom_target(cxx_tests)  # all that the next function makes; what the presets with sanitizers build

# dtrain_add_test(NAME [TORCH|TORCH_API] SOURCES ... LINK targets ... [NP 1 2 4] [WAITS] [TIMEOUT s] [LABELS ...] [FULL])
# Without NP a plain GoogleTest program; with NP one CTest entry per rank count, each started by mpirun.
# WAITS: its ranks mostly wait for a deadline, so that other tests may run beside it (tests/CMakeLists.txt: PROCESSORS).
# FULL: left out of the usual run, taken by tests/run.sh --full.
function(dtrain_add_test name)
  cmake_parse_arguments(ARG "TORCH;TORCH_API;FULL;WAITS" "TIMEOUT" "SOURCES;LINK;NP;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(DTRAIN_SANITIZE)  # not optimised, and each access checked
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  add_dependencies(cxx_tests ${name})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gmock dtrain_options)
  if(ARG_TORCH_API)
    dtrain_use_torch(${name} torch_api)
  elseif(ARG_TORCH)
    dtrain_use_torch(${name} tensor)
  endif()
  set(labels cxx ${ARG_LABELS})
  if(ARG_FULL)
    list(APPEND labels full)
  endif()
  if(NOT ARG_NP)
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "plain;${labels}" PROCESSORS 2)
    return()
  endif()
  target_link_libraries(${name} PRIVATE dtrain_test_mpi_main)
  foreach(np IN LISTS ARG_NP)
    set(processors 4)
    if(ARG_WAITS)
      set(processors 1)
    elseif(np EQUAL 1)
      set(processors 2)
    endif()
    add_test(NAME ${name}.np${np} COMMAND
      "${CMAKE_SOURCE_DIR}/tests/support/mpirun.sh" ${np} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.np${np} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "np;${labels}" PROCESSORS ${processors}
      ENVIRONMENT "DTRAIN_MPIRUN=${MPIEXEC_EXECUTABLE}" SKIP_RETURN_CODE 77)
  endforeach()
endfunction()
