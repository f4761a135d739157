# Everything dtrain links, as imported targets. The user's choice wins (-DMPI_HOME=, -DTORCH_HOME=), then what
# jobs/setup.sh installed into DTRAIN_DEPS or was told to take (choices.env there), then the system.

file(REAL_PATH "${DTRAIN_DEPS}" _deps)  # .deps may be a link; clones that share its target have equal command lines
set(DTRAIN_VENV "${_deps}/venv")
if(EXISTS "${_deps}/choices.env")
  file(STRINGS "${_deps}/choices.env" _choices REGEX "=.")
  foreach(_choice IN LISTS _choices)
    string(REGEX MATCH "^([A-Z_]+)=(.*)$" _match "${_choice}")
    if(NOT ${CMAKE_MATCH_1})
      set(${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
    endif()
  endforeach()
endif()
if(EXISTS "${_deps}/system/usr")  # Debian packages unpacked without root by setup.sh --from-bundle
  list(APPEND CMAKE_PREFIX_PATH "${_deps}/system/usr")
  set(ENV{PKG_CONFIG_SYSROOT_DIR} "${_deps}/system")
endif()

if(NOT MPI_HOME AND NOT MPI_CXX_COMPILER AND EXISTS "${DTRAIN_VENV}/bin/mpicxx")
  # Cached: once MPI_CXX_COMPILER is found this branch is not taken again, and the installed package names MPI_HOME.
  set(MPI_HOME "${DTRAIN_VENV}" CACHE PATH "The MPI installation to use")
endif()
set(MPI_CXX_SKIP_MPICXX ON)  # Open MPI 4.1 pulls in its C++ bindings otherwise
find_package(MPI REQUIRED COMPONENTS CXX)
# Open MPI's wrapper asks for RUNPATH, which would override the RPATH that DtrainTargets.cmake asks for.
get_target_property(_mpi_options MPI::MPI_CXX INTERFACE_LINK_OPTIONS)
if(_mpi_options)
  string(REGEX REPLACE "-Wl(,|\\$<COMMA>)--enable-new-dtags" "" _mpi_options "${_mpi_options}")
  set_target_properties(MPI::MPI_CXX PROPERTIES INTERFACE_LINK_OPTIONS "${_mpi_options}")
endif()

set(HDF5_PREFER_PARALLEL OFF)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(LibTorch REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)
find_package(LibLZMA REQUIRED)
find_package(LibArchive REQUIRED)
if(EXISTS "${_deps}/system/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}")
  foreach(_target OpenSSL::Crypto ZLIB::ZLIB)  # some of their headers lie there, which only the system's compiler knows
    target_include_directories(${_target} SYSTEM INTERFACE "${_deps}/system/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}")
  endforeach()
endif()
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(sentencepiece IMPORTED_TARGET sentencepiece)  # optional: a tokeniser
pkg_check_modules(sodium IMPORTED_TARGET libsodium)         # optional: secret random numbers
find_package(PNG)   # optional, as JPEG is: images in files
find_package(JPEG)

if(NOT DTRAIN_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPU architectures to build for; the last one also as PTX")
    enable_language(CUDA)
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # unknown to CMake 3.25
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    find_package(CUDAToolkit REQUIRED)
    find_package(NCCL REQUIRED)
    set(DTRAIN_WITH_CUDA ON)
  elseif(DTRAIN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DTRAIN_CUDA=ON but nvcc was not found; put it in PATH or use the preset release")
  endif()
endif()
