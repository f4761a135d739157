# NCCL::NCCL from the wheel that LibTorch uses (so that one libnccl is loaded), otherwise the CUDA toolkit's.
include(FindPackageHandleStandardArgs)

file(GLOB _nccl_wheel "${DTRAIN_VENV}/lib/python3*/site-packages/nvidia/nccl")
find_path(NCCL_INCLUDE_DIR nccl.h HINTS "${NCCL_HOME}/include" "${_nccl_wheel}/include" ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY NAMES libnccl.so.2 nccl
  HINTS "${NCCL_HOME}/lib" "${_nccl_wheel}/lib" "${CUDAToolkit_LIBRARY_DIR}")
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
if(NCCL_INCLUDE_DIR)
  foreach(_part MAJOR MINOR PATCH)
    file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" _line REGEX "#define NCCL_${_part} ")
    string(REGEX MATCH "[0-9]+" _nccl_${_part} "${_line}")
  endforeach()
  set(NCCL_VERSION "${_nccl_MAJOR}.${_nccl_MINOR}.${_nccl_PATCH}")
endif()
find_package_handle_standard_args(NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION
  REASON_FAILURE_MESSAGE "run jobs/setup.sh, name one with -DNCCL_HOME=, or configure with -DDTRAIN_CUDA=OFF")
if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL SHARED IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES
    IMPORTED_LOCATION "${NCCL_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
