#include "h5/library.hpp"

#include <hdf5.h>

#include "core/error.hpp"

namespace dtrain::h5 {

Library::Library() {
  // At exit HDF5 would close what a full disk left open, which ends in a segmentation fault. Handles have
  // owners.
  H5dont_atexit();
  // A file must not make the library load code: no filter plugin of HDF5_PLUGIN_PATH or the default folder.
  H5PLset_loading_state(0);
  require(H5open() >= 0, "the HDF5 library does not start", {.advice = "reinstall libhdf5"});
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  require(major == H5_VERS_MAJOR && minor >= H5_VERS_MINOR,
          "libhdf5 " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release) +
              " was loaded but dtrain was built with " H5_VERS_INFO,
          {.advice = "take another libhdf5 out of LD_LIBRARY_PATH"});
}

}  // namespace dtrain::h5
