#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "h5/handle.hpp"

namespace dtrain::h5 {

// Every function here and in attribute.hpp and dataset.hpp: the caller holds Library::lock(); throws Error
// with file, object and HDF5's reason (exit code 1; the caller rethrows as data_error and the like).
// `location` is the id() of a file or group; `path` is relative to it.

enum class Access { read, write };  ///< write: read and change a file that exists.

/// A new file, replacing one of that name, and a link that lies there rather than what it leads to: earliest
/// format (readable after kill -9, by every HDF5), no locks.
File create_file(const std::string& path);

/// An existing file, without file locks, so that a file being written can be read.
File open_file(const std::string& path, Access access);

/// Hands everything to the operating system: readable after kill -9 from here on.
void flush(const File& file);

/// Bytes of the file as it is now, flushed or not.
std::uint64_t file_bytes(const File& file);

Group create_group(hid_t location, const std::string& path);  ///< With the groups above it.
Group open_group(hid_t location, const std::string& path);

/// What is opened with such a list is not sought in other files: no external link is followed but to the file
/// of a rank, `ranks/rank-NNNNN.h5`, which must be a regular one. Every function here uses one.
void keep_in_file(const PropertyList& access);

/// Whether there is a link `path`, wherever it leads. Throws Error where a group above lies in another file.
bool has_link(hid_t location, const std::string& path);

/// Whether `path` (each part of it) leads to an object. Throws Error where it lies in another file.
bool exists(hid_t location, const std::string& path);

/// Names of the links in the group `path`, ascending.
std::vector<std::string> names(hid_t location, const std::string& path);

enum class ObjectKind { group, dataset, other };
ObjectKind kind_of(hid_t location, const std::string& path);

/// Copies a group or dataset with all below it and all attributes, also between files.
void copy_object(hid_t from, const std::string& from_path, hid_t to, const std::string& to_path);

/// A link at `path` to the object `target` of another file; a relative `file_name` is taken from this file's
/// folder.
void link_external(hid_t location, const std::string& path, const std::string& file_name,
                   const std::string& target);

/// The file that the external link `path` names; empty for another kind of link.
std::string file_of_link(hid_t location, const std::string& path);

/// Removes the link `path`; the object behind it goes with its last link.
void remove_link(hid_t location, const std::string& path);

}  // namespace dtrain::h5
