# `cmake --install` gives a tree that can be moved: bin/dtrain, its pages for man, its completion for shells, lib/*.a,
# include/dtrain/FOLDER/*.hpp, and what find_package(dtrain) needs; `--component program` leaves out the last three. LibTorch
# and MPI stay where they are; the program finds them by its RPATH.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/dtrain")

get_property(_libraries GLOBAL PROPERTY DTRAIN_LIBRARIES)
list(TRANSFORM _libraries PREPEND dtrain_)
list(APPEND _libraries dtrain_torch_fmt dtrain_plugin)
install(TARGETS ${_libraries} EXPORT dtrainTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY lib/ DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/dtrain" FILES_MATCHING PATTERN "*.hpp")

# Named one by one: CMake's own choice of link folders leaves out those inside the source folder, such as .deps.
foreach(_library IN ITEMS "${LibTorch_CPU_LIBRARY}" ${MPI_CXX_LIBRARIES} "${NCCL_LIBRARY}")
  if(IS_ABSOLUTE "${_library}")
    get_filename_component(_folder "${_library}" DIRECTORY)
    list(APPEND _dtrain_rpath "${_folder}")
  endif()
endforeach()
list(REMOVE_DUPLICATES _dtrain_rpath)

# dtrain_installed_rpath(TARGET FOLDER...): the run path of the build is that of the installed tree, whose shape is the same.
# CMake would else pad it with ':', to write the other over it when it installs; and the loader takes each empty element
# for the current folder, so that a libarchive.so.13 lying there would be loaded.
function(dtrain_installed_rpath target)
  set_target_properties(${target} PROPERTIES
    INSTALL_RPATH "${ARGN};${_dtrain_rpath}" INSTALL_RPATH_USE_LINK_PATH ON BUILD_WITH_INSTALL_RPATH ON)
endfunction()

if(TARGET dtrain_app)
  # The CUDA module is looked for beside the program's own libraries, LibTorch and MPI where they were at build time.
  dtrain_installed_rpath(dtrain_app "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS dtrain_app RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
  # The program itself writes its pages for man and its completion, so that both have the options that it has.
  install(CODE "
    set(dtrain_program \"$<TARGET_FILE:dtrain_app>\")
    set(dtrain_man \"${CMAKE_INSTALL_MANDIR}/man1\")
    set(dtrain_bash \"${CMAKE_INSTALL_DATADIR}/bash-completion/completions\")
    set(dtrain_zsh \"${CMAKE_INSTALL_DATADIR}/zsh/site-functions\")" COMPONENT program)
  install(SCRIPT cmake/InstallPages.cmake COMPONENT program)
endif()
foreach(_module dtrain_cuda dtrain_cuda_graphs)
  if(TARGET ${_module})
    dtrain_installed_rpath(${_module} "$ORIGIN")
    install(TARGETS ${_module} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT program)
  endif()
endforeach()

# What draws the pictures of `dtrain report --html`: Python, found beside the program both as it is built and as it is
# installed.
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/share/dtrain")
file(CREATE_LINK "${CMAKE_SOURCE_DIR}/perf/notebooks/dtrain_plots" "${CMAKE_BINARY_DIR}/share/dtrain/dtrain_plots" SYMBOLIC)
install(DIRECTORY perf/notebooks/dtrain_plots DESTINATION "${CMAKE_INSTALL_DATADIR}/dtrain" COMPONENT program PATTERN __pycache__ EXCLUDE)

install(EXPORT dtrainTargets NAMESPACE dtrain:: DESTINATION "${_package_dir}")
configure_package_config_file(cmake/dtrainConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/dtrainConfig.cmake"
  INSTALL_DESTINATION "${_package_dir}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/dtrainConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/dtrainConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/dtrainConfigVersion.cmake"
  cmake/FindLibTorch.cmake DESTINATION "${_package_dir}")
