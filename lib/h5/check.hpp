#pragma once

#include <hdf5.h>

#include <string>
#include <string_view>

namespace dtrain::h5 {

/// Stops HDF5 from printing its error stack on this thread for as long as it lives (the setting is per
/// thread). The text goes into the Error instead. Stands at the entry of each function that calls HDF5.
class SilentErrors {
 public:
  SilentErrors();
  ~SilentErrors();
  SilentErrors(const SilentErrors&) = delete;
  SilentErrors& operator=(const SilentErrors&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

/// What HDF5 says about the last failed call of this thread, innermost reason; empty when it says nothing.
std::string last_error();

/// `FILE:/path/of/object` of an open file, group or dataset; for messages.
std::string describe(hid_t object);

/// Throws Error with `problem`, HDF5's reason and `subject` when `result` is negative.
void check(herr_t result, std::string_view problem, const std::string& subject);

/// The same about an open object, or about `path` below it. Its name is asked for only after a failure and
/// after HDF5's reason was taken: every HDF5 call clears the reason of the one before.
void check(herr_t result, std::string_view problem, hid_t object, const std::string& path = "");

/// The same for a call that returns an identifier; gives it back.
hid_t check_id(hid_t id, std::string_view problem, const std::string& subject);
hid_t check_id(hid_t id, std::string_view problem, hid_t object, const std::string& path = "");

/// What Handle does at its end: nothing for an invalid id; the first never throws.
void close_quietly(herr_t (*close)(hid_t), hid_t id) noexcept;
void close_checked(herr_t (*close)(hid_t), hid_t id);

}  // namespace dtrain::h5
