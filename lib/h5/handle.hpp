#pragma once

#include <hdf5.h>

#include <utility>

#include "h5/check.hpp"

namespace dtrain::h5 {

/// Owns one HDF5 identifier of one kind, so that a dataset cannot be closed as a file. Move-only. The caller
/// holds the Library's lock while it is made, used or destroyed.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(hid_t id) noexcept : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&& other) noexcept {
    Handle held(std::move(other));
    std::swap(id_, held.id_);  // what we held is closed here
    return *this;
  }
  ~Handle() { close_quietly(Close, id_); }

  hid_t id() const noexcept { return id_; }
  bool is_open() const noexcept { return id_ >= 0; }

  /// Closes now and throws Error where the destructor would be silent: for a file, the last moment at which a
  /// full disk can be reported.
  void close() { close_checked(Close, std::exchange(id_, H5I_INVALID_HID)); }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using File = Handle<H5Fclose>;
using Group = Handle<H5Gclose>;
using Dataset = Handle<H5Dclose>;
using Dataspace = Handle<H5Sclose>;
using Datatype = Handle<H5Tclose>;
using PropertyList = Handle<H5Pclose>;
using Attribute = Handle<H5Aclose>;
using Object = Handle<H5Oclose>;

}  // namespace dtrain::h5
