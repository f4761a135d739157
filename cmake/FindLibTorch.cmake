# LibTorch::cpu and, where the wheel or archive has it, LibTorch::cuda. Torch's own package file wants a CUDA
# toolkit and links libtorch_cuda into everything, which quadruples the memory of a CPU process.
#   TORCH_HOME   a folder with include/ and lib/: an unpacked LibTorch or site-packages/torch
include(FindPackageHandleStandardArgs)

if(NOT TORCH_HOME)
  file(GLOB _torch_candidates "${DTRAIN_VENV}/lib/python3*/site-packages/torch")
  list(APPEND _torch_candidates "$ENV{TORCH_HOME}" /opt/libtorch /usr/local/libtorch)
  foreach(_candidate IN LISTS _torch_candidates)
    if(_candidate AND EXISTS "${_candidate}/include/torch/csrc/api/include/torch/torch.h")
      set(TORCH_HOME "${_candidate}" CACHE PATH "A folder with LibTorch's include/ and lib/")
      break()
    endif()
  endforeach()
endif()

find_library(LibTorch_CPU_LIBRARY torch_cpu PATHS "${TORCH_HOME}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 PATHS "${TORCH_HOME}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_CUDA_LIBRARY torch_cuda PATHS "${TORCH_HOME}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_C10_CUDA_LIBRARY c10_cuda PATHS "${TORCH_HOME}/lib" NO_DEFAULT_PATH)
mark_as_advanced(LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_CUDA_LIBRARY LibTorch_C10_CUDA_LIBRARY)

foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)  # the latter before 2.9
  if(EXISTS "${TORCH_HOME}/include/${_header}" AND NOT LibTorch_VERSION)
    file(READ "${TORCH_HOME}/include/${_header}" _text)
    if(_text MATCHES "TORCH_VERSION_MAJOR ([0-9]+).*TORCH_VERSION_MINOR ([0-9]+).*TORCH_VERSION_PATCH ([0-9]+)")
      set(LibTorch_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
    endif()
  endif()
endforeach()

find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY TORCH_HOME VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run jobs/setup.sh, or name a LibTorch with -DTORCH_HOME=")

if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_C10_LIBRARY}")
  add_library(LibTorch::cpu SHARED IMPORTED)
  set_target_properties(LibTorch::cpu PROPERTIES
    IMPORTED_LOCATION "${LibTorch_CPU_LIBRARY}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES
      "${TORCH_HOME}/include;${TORCH_HOME}/include/torch/csrc/api/include"
    INTERFACE_INCLUDE_DIRECTORIES
      "${TORCH_HOME}/include;${TORCH_HOME}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES LibTorch::c10)
  if(LibTorch_CUDA_LIBRARY AND LibTorch_C10_CUDA_LIBRARY)
    add_library(LibTorch::c10_cuda SHARED IMPORTED)
    set_target_properties(LibTorch::c10_cuda PROPERTIES IMPORTED_LOCATION "${LibTorch_C10_CUDA_LIBRARY}")
    add_library(LibTorch::cuda SHARED IMPORTED)
    set_target_properties(LibTorch::cuda PROPERTIES
      IMPORTED_LOCATION "${LibTorch_CUDA_LIBRARY}"
      INTERFACE_LINK_LIBRARIES "LibTorch::cpu;LibTorch::c10_cuda")
  endif()
endif()
