#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>

namespace dtrain::models::exported {

struct RecordSize {
  std::string name;
  std::uint64_t bytes = 0;
};

/// The largest record of a zip archive of `bytes` bytes, unpacked, as its directory says; nothing where there
/// is no directory, or none that can be followed to its first record. Reads the directory alone. Source:
/// PKWARE's APPNOTE.TXT, 4.3.12 to 4.3.16 and 4.5.3.
std::optional<RecordSize> largest_record(std::istream& file, std::int64_t bytes);

}  // namespace dtrain::models::exported
