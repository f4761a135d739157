#include "data/import/archive_reader.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include "core/error.hpp"
#include "core/regular_file.hpp"
#include "data/formats/unpacked_bytes.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::uint64_t kMostUnpacked = std::uint64_t{16} << 30;  // the members are in memory together
constexpr std::size_t kMostMembers = 10'000'000;
constexpr std::string_view kRefused = "dtrain does not unpack it; take another copy";

std::string start_of(const fs::path& file) {
  require_regular_file(file, ExitCode::data);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw data_error("cannot be opened", file.string(), "check its path and rights");
  std::string start(kPackingBytes, '\0');
  stream.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(stream.gcount()));
  return start;
}

/// A zip ends with a list of its members. Without it, libarchive takes what comes before the cut for the
/// whole. Source: PKWARE's APPNOTE.TXT, 4.3.16.
bool is_zip_without_end(const fs::path& file, std::uint64_t bytes) {
  constexpr std::uint64_t kLongestEnd = 22 + 65535;  // with a comment
  if (!start_of(file).starts_with("PK\x03\x04")) return false;
  std::ifstream stream(file, std::ios::binary);
  std::string end(std::min(bytes, kLongestEnd), '\0');
  stream.seekg(-static_cast<std::streamoff>(end.size()), std::ios::end);
  stream.read(end.data(), static_cast<std::streamsize>(end.size()));
  constexpr std::size_t kEnd = 22;
  const auto at = end.rfind("PK\x05\x06");
  if (at == std::string::npos || at + kEnd > end.size()) return true;
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(end[at + i]));
  };
  return at + kEnd + byte(20) + 256 * byte(21) > end.size();  // its comment
}

bool is_compressed(std::string_view start) {
  return start.starts_with("\x1f\x8b") || start.starts_with(std::string_view("\xfd"
                                                                             "7zXZ\0",
                                                                             6));
}

// POSIX.1-1988 (ustar), and GNU's own, which differs in the byte after the word.
bool is_tar(std::string_view start) {
  constexpr std::size_t kMagicAt = 257;
  return start.size() == kPackingBytes && start.substr(kMagicAt, 5) == "ustar";
}

bool named_as_tar(const fs::path& file) {
  const std::string name = file.filename().string();
  const auto ends = [&](const char* suffix) { return name.ends_with(suffix); };
  return ends(".tar") || ends(".tar.gz") || ends(".tar.xz") || ends(".tgz") || ends(".txz");
}

// An archive is data from elsewhere: users unpack it by hand, too, and must be as safe as we are: it is
// refused even where we would only have read it.
std::string refusal_of(archive_entry* entry, const fs::path& path) {
  if (path.is_absolute()) return "has an absolute path";
  if (std::find(path.begin(), path.end(), "..") != path.end()) return "climbs out of its folder";
  if (archive_entry_hardlink(entry) != nullptr) return "is a link to another file";
  switch (archive_entry_filetype(entry)) {
    case AE_IFLNK:
      return "is a link to another file";
    case AE_IFREG:
    case AE_IFDIR:
    case 0:  // a zip that does not say
      return "";
    default:
      return "is neither a file nor a folder";
  }
}

}  // namespace

struct ArchiveReader::Impl {
  Impl() = default;
  ~Impl() { archive_read_free(handle); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  archive* handle = archive_read_new();
  archive_entry* entry = nullptr;
  std::string name;
  std::string content_name;  ///< Of the one file that was packed; empty for archives.
  bool ended = false;
  std::uint64_t packed = 0;    ///< Bytes of the file on disk.
  std::uint64_t unpacked = 0;  ///< Bytes that were handed out.
  std::size_t members = 0;

  /// What is taken out, or was decompressed on the way, is limited by what the file has.
  void require_moderate() const {
    const auto through = static_cast<std::uint64_t>(std::max<la_int64_t>(archive_filter_bytes(handle, 0), 0));
    const std::uint64_t most = std::min(kMostUnpacked, most_unpacked(packed));
    if (unpacked <= most && through <= most_unpacked(packed) && members <= kMostMembers) return;
    throw data_error(members > kMostMembers ? fmt::format("holds more than {} members", kMostMembers)
                                            : fmt::format("unpacks to more than {} MiB from {} MiB",
                                                          most >> 20, (packed >> 20) + 1),
                     name, "unpack it yourself where that is right, and give the folder");
  }

  Error damage() const {
    const char* detail = archive_error_string(handle);
    return data_error(fmt::format("is truncated or damaged{}",
                                  detail == nullptr ? std::string() : fmt::format(" ({})", detail)),
                      name, "fetch it again");
  }
};

Packing packing_of(const fs::path& file, std::string_view start) {
  if (start.starts_with("PK\x03\x04") || named_as_tar(file)) return Packing::archive;
  if (!is_compressed(start)) return is_tar(start) ? Packing::archive : Packing::plain;
  ArchiveReader inside(file, Packing::single);
  return inside.next() && is_tar(inside.read(kPackingBytes)) ? Packing::archive : Packing::single;
}

ArchiveReader::ArchiveReader(const fs::path& file, Packing packing) : impl_(std::make_unique<Impl>()) {
  impl_->name = file.string();
  impl_->packed = fs::file_size(file);
  archive_read_support_filter_gzip(impl_->handle);
  archive_read_support_filter_xz(impl_->handle);
  if (packing == Packing::single) {
    impl_->content_name = file.stem().string();
    archive_read_support_format_raw(impl_->handle);
    archive_read_support_format_empty(impl_->handle);  // a packed file without content
  } else {
    if (is_zip_without_end(file, impl_->packed))
      throw data_error("is truncated or damaged (its list of members is missing)", file.string(),
                       "fetch it again");
    archive_read_support_format_tar(impl_->handle);
    archive_read_support_format_zip_streamable(impl_->handle);
    archive_read_support_format_zip_seekable(impl_->handle);
  }
  if (archive_read_open_filename(impl_->handle, file.c_str(), kBlockBytes) != ARCHIVE_OK)
    throw impl_->damage();
}

ArchiveReader::~ArchiveReader() = default;

bool ArchiveReader::next() {
  while (!impl_->ended) {
    const int code = archive_read_next_header(impl_->handle, &impl_->entry);
    if (code == ARCHIVE_EOF) {
      // libarchive finds no header in an empty file; it is a file all the same.
      const bool empty_file = !impl_->content_name.empty() && member_.empty();
      impl_->entry = nullptr;
      impl_->ended = true;
      member_ = impl_->content_name;
      return empty_file;
    }
    // A warning is about a name in another character set or the like; the content is whole.
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN) throw impl_->damage();
    ++impl_->members;
    impl_->require_moderate();
    if (!impl_->content_name.empty()) {
      member_ = impl_->content_name;
      return true;
    }
    const char* stored = archive_entry_pathname(impl_->entry);
    if (stored == nullptr) stored = archive_entry_pathname_utf8(impl_->entry);
    if (stored == nullptr) throw impl_->damage();
    const fs::path path = stored;
    if (const std::string refusal = refusal_of(impl_->entry, path); !refusal.empty())
      throw data_error(fmt::format("its member {} {}", stored, refusal), impl_->name, kRefused);
    member_ = path.lexically_normal().generic_string();
    if (archive_entry_filetype(impl_->entry) != AE_IFDIR && !member_.ends_with('/')) return true;
  }
  return false;
}

std::string ArchiveReader::read(std::size_t most) {
  std::string content;
  if (impl_->entry == nullptr) return content;
  // The stored size is a promise of the file's; memory grows with what is there.
  const auto promised = static_cast<std::size_t>(
      archive_entry_size_is_set(impl_->entry) != 0 ? archive_entry_size(impl_->entry) : 0);
  std::size_t piece = std::clamp<std::size_t>(promised + 1, 512, 16 * kBlockBytes);
  while (content.size() < most) {
    const std::size_t before = content.size();
    const std::size_t wanted = std::min(piece, most - before);
    content.resize(before + wanted);
    const la_ssize_t got = archive_read_data(impl_->handle, content.data() + before, wanted);
    if (got < 0 && got != ARCHIVE_WARN) throw impl_->damage();
    content.resize(before + static_cast<std::size_t>(std::max<la_ssize_t>(got, 0)));
    impl_->unpacked += static_cast<std::uint64_t>(std::max<la_ssize_t>(got, 0));
    impl_->require_moderate();
    if (got <= 0) break;
    piece = std::clamp(content.size(), piece, 64 * kBlockBytes);
  }
  if (promised > content.size() && content.size() < most) throw impl_->damage();
  return content;
}

}  // namespace dtrain::data
