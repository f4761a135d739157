#include "h5/file.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/error.hpp"
#include "core/own_place.hpp"
#include "core/regular_file.hpp"

namespace dtrain::h5 {
namespace {

// Locks fail or hang on some parallel file systems and would refuse a reader beside the writer.
PropertyList file_access() {
  PropertyList access(check_id(H5Pcreate(H5P_FILE_ACCESS), "HDF5 has no file access list", ""));
  check(H5Pset_libver_bounds(access.id(), H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST), "HDF5 refuses the format",
        "");
  check(H5Pset_file_locking(access.id(), false, true), "HDF5 refuses to work without file locks", "");
  return access;
}

PropertyList with_parents() {
  PropertyList create(check_id(H5Pcreate(H5P_LINK_CREATE), "HDF5 has no link list", ""));
  check(H5Pset_create_intermediate_group(create.id(), 1), "HDF5 refuses a link list", "");
  return create;
}

herr_t add_name(hid_t /*group*/, const char* name, const H5L_info_t* /*info*/, void* list) {
  static_cast<std::vector<std::string>*>(list)->emplace_back(name);
  return 0;
}

/// `ranks/rank-00003.h5`: what a run's results are linked to.
bool is_file_of_rank(std::string_view name) {
  constexpr std::string_view kBefore = "ranks/rank-";
  constexpr std::string_view kAfter = ".h5";
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter)) return false;
  name.remove_prefix(kBefore.size());
  name.remove_suffix(kAfter.size());
  return !name.empty() &&
         std::ranges::all_of(name, [](char letter) { return letter >= '0' && letter <= '9'; });
}

/// HDF5 asks before it opens the file of an external link: below 0 it does not. No file but that of a rank,
/// and no FIFO or device, for whose writer it would wait.
herr_t follow_only_to_ranks(const char* parent, const char* /*group*/, const char* file,
                            const char* /*object*/, unsigned* flags, hid_t /*access*/,
                            void* /*data*/) noexcept {
  try {
    std::error_code ignored;
    const auto path = std::filesystem::path(parent).parent_path() / file;
    *flags = H5F_ACC_RDONLY;
    return is_file_of_rank(file) && std::filesystem::is_regular_file(path, ignored) ? 0 : -1;
  } catch (...) {
    return -1;
  }
}

PropertyList access_within(hid_t kind) {
  PropertyList access(check_id(H5Pcreate(kind), "HDF5 has no access list", ""));
  keep_in_file(access);
  return access;
}

/// Says in words what HDF5 would only fail at.
void require_own_link(hid_t location, const std::string& path) {
  const std::string other = file_of_link(location, path);
  require(other.empty() || is_file_of_rank(other), "lies in another file: an external link leads to it",
          {.subject = path, .advice = "copy it into this file"});
}

}  // namespace

File create_file(const std::string& path) {
  claim_file(path, ExitCode::failure);
  const SilentErrors silent;
  const PropertyList access = file_access();
  return File(check_id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()),
                       "cannot be created as an HDF5 file", path));
}

File open_file(const std::string& path, Access access) {
  require_regular_file(path, ExitCode::failure);  // HDF5 would wait for the writer of a FIFO
  const SilentErrors silent;
  const PropertyList list = file_access();
  const unsigned flags = access == Access::read ? H5F_ACC_RDONLY : H5F_ACC_RDWR;
  return File(check_id(H5Fopen(path.c_str(), flags, list.id()), "cannot be opened as an HDF5 file", path));
}

void flush(const File& file) {
  const SilentErrors silent;
  check(H5Fflush(file.id(), H5F_SCOPE_LOCAL), "cannot be written", file.id());
}

std::uint64_t file_bytes(const File& file) {
  const SilentErrors silent;
  hsize_t bytes = 0;
  check(H5Fget_filesize(file.id(), &bytes), "has no size", file.id());
  return bytes;
}

Group create_group(hid_t location, const std::string& path) {
  const SilentErrors silent;
  const PropertyList links = with_parents();
  return Group(check_id(H5Gcreate2(location, path.c_str(), links.id(), H5P_DEFAULT, H5P_DEFAULT),
                        "group cannot be created", location, path));
}

void keep_in_file(const PropertyList& access) {
  check(H5Pset_elink_cb(access.id(), follow_only_to_ranks, nullptr), "HDF5 refuses a list of links", "");
}

Group open_group(hid_t location, const std::string& path) {
  const SilentErrors silent;
  const PropertyList access = access_within(H5P_GROUP_ACCESS);
  return Group(check_id(H5Gopen2(location, path.c_str(), access.id()), "group is missing", location, path));
}

bool has_link(hid_t location, const std::string& path) {
  const SilentErrors silent;
  const PropertyList access = access_within(H5P_LINK_ACCESS);
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);  // each group above must exist, or HDF5 calls it an error
    if (H5Lexists(location, part.c_str(), access.id()) <= 0) return false;
    if (end == std::string::npos) return true;
    require_own_link(location, part);
  }
}

bool exists(hid_t location, const std::string& path) {
  const SilentErrors silent;
  if (path == "/") return true;
  if (!has_link(location, path)) return false;
  require_own_link(location, path);
  const PropertyList access = access_within(H5P_LINK_ACCESS);
  return H5Oexists_by_name(location, path.c_str(), access.id()) > 0;
}

std::vector<std::string> names(hid_t location, const std::string& path) {
  const SilentErrors silent;
  const Group group = open_group(location, path);
  std::vector<std::string> list;
  hsize_t position = 0;
  check(H5Literate(group.id(), H5_INDEX_NAME, H5_ITER_INC, &position, add_name, &list),
        "group cannot be listed", location, path);
  return list;
}

ObjectKind kind_of(hid_t location, const std::string& path) {
  const SilentErrors silent;
  const PropertyList access = access_within(H5P_LINK_ACCESS);
  const Object object(
      check_id(H5Oopen(location, path.c_str(), access.id()), "object is missing", location, path));
  switch (H5Iget_type(object.id())) {
    case H5I_GROUP:
      return ObjectKind::group;
    case H5I_DATASET:
      return ObjectKind::dataset;
    default:
      return ObjectKind::other;
  }
}

void copy_object(hid_t from, const std::string& from_path, hid_t to, const std::string& to_path) {
  const SilentErrors silent;
  const PropertyList links = with_parents();
  check(H5Ocopy(from, from_path.c_str(), to, to_path.c_str(), H5P_DEFAULT, links.id()),
        "cannot be copied to " + to_path, from, from_path);
}

void link_external(hid_t location, const std::string& path, const std::string& file_name,
                   const std::string& target) {
  const SilentErrors silent;
  const PropertyList links = with_parents();
  check(
      H5Lcreate_external(file_name.c_str(), target.c_str(), location, path.c_str(), links.id(), H5P_DEFAULT),
      "link cannot be created", location, path);
}

std::string file_of_link(hid_t location, const std::string& path) {
  const SilentErrors silent;
  const PropertyList access = access_within(H5P_LINK_ACCESS);
  H5L_info_t facts{};
  check(H5Lget_info(location, path.c_str(), &facts, access.id()), "link is missing", location, path);
  if (facts.type != H5L_TYPE_EXTERNAL) return {};
  std::string value(facts.u.val_size, '\0');
  check(H5Lget_val(location, path.c_str(), value.data(), value.size(), access.id()), "link cannot be read",
        location, path);
  unsigned flags = 0;
  const char* file = nullptr;
  const char* target = nullptr;
  check(H5Lunpack_elink_val(value.data(), value.size(), &flags, &file, &target), "link cannot be read",
        location, path);
  return file;
}

void remove_link(hid_t location, const std::string& path) {
  const SilentErrors silent;
  const PropertyList access = access_within(H5P_LINK_ACCESS);
  check(H5Ldelete(location, path.c_str(), access.id()), "link cannot be removed", location, path);
}

}  // namespace dtrain::h5
