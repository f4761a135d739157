#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace dtrain::data::testing {

struct Member {
  std::string path;
  std::string content;
  std::string link = {};  // where a symbolic link leads
};

enum class Format { tar, zip, raw };

/// Writes an archive with libarchive itself: `add_filter` packs it.
inline void write_archive(const std::filesystem::path& file, const std::vector<Member>& members,
                          Format format = Format::tar,
                          int (*add_filter)(archive*) = archive_write_add_filter_none) {
  archive* out = archive_write_new();
  add_filter(out);
  if (format == Format::tar) archive_write_set_format_ustar(out);
  if (format == Format::zip) archive_write_set_format_zip(out);
  if (format == Format::raw) archive_write_set_format_raw(out);
  ASSERT_EQ(archive_write_open_filename(out, file.c_str()), ARCHIVE_OK);
  for (const Member& member : members) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, member.path.c_str());
    archive_entry_set_filetype(entry, member.link.empty() ? AE_IFREG : AE_IFLNK);
    archive_entry_set_perm(entry, 0644);
    if (!member.link.empty()) archive_entry_set_symlink(entry, member.link.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(member.content.size()));
    ASSERT_EQ(archive_write_header(out, entry), ARCHIVE_OK) << archive_error_string(out);
    archive_write_data(out, member.content.data(), member.content.size());
    archive_entry_free(entry);
  }
  archive_write_close(out);
  archive_write_free(out);
}

}  // namespace dtrain::data::testing
