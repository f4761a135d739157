#include "models/exported/record_sizes.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace dtrain::models::exported {
namespace {

constexpr std::size_t kEndBytes = 22;        // of the directory's end, which a comment may follow
constexpr std::size_t kMostComment = 65535;  // bytes
constexpr std::size_t kEntryBytes = 46;      // of a record's entry, which its name and more follow
constexpr std::size_t kLocatorBytes = 20;    // in front of the end: where the one with longer numbers is
constexpr std::size_t kLongEndBytes = 56;

/// `at`: of the first byte; numbers are little-endian, as all processors that dtrain runs on have them.
template <class T>
std::uint64_t number(std::string_view bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// Fewer bytes where the file ends before.
std::string bytes_at(std::istream& file, std::uint64_t at, std::size_t count) {
  std::string bytes(count, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(at));
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return bytes;
}

std::optional<std::uint64_t> start_of_directory(std::istream& file, std::int64_t bytes) {
  const auto searched = std::min<std::int64_t>(bytes, kEndBytes + kMostComment);
  const auto first = static_cast<std::uint64_t>(bytes - searched);
  const std::string end = bytes_at(file, first, static_cast<std::size_t>(searched));
  const auto at = end.rfind("PK\x05\x06");
  if (at == std::string::npos || end.size() - at < kEndBytes) return std::nullopt;
  const auto locator_at = first + at;
  if (locator_at >= kLocatorBytes) {
    const std::string locator = bytes_at(file, locator_at - kLocatorBytes, kLocatorBytes);
    if (locator.size() == kLocatorBytes && locator.starts_with("PK\x06\x07")) {
      const std::string long_end = bytes_at(file, number<std::uint64_t>(locator, 8), kLongEndBytes);
      if (long_end.size() == kLongEndBytes && long_end.starts_with("PK\x06\x06"))
        return number<std::uint64_t>(long_end, 48);
    }
  }
  return number<std::uint32_t>(end, at + 16);
}

/// The size in the field of longer numbers, which leads it where the entry itself has no room.
std::uint64_t long_size(std::string_view more, std::uint64_t otherwise) {
  while (more.size() >= 4) {
    const auto kind = number<std::uint16_t>(more, 0);
    const auto length = number<std::uint16_t>(more, 2);
    if (kind == 1 && length >= 8 && more.size() >= 12) return number<std::uint64_t>(more, 4);
    more.remove_prefix(std::min<std::size_t>(more.size(), 4 + length));
  }
  return otherwise;
}

}  // namespace

std::optional<RecordSize> largest_record(std::istream& file, std::int64_t bytes) {
  const auto start = start_of_directory(file, bytes);
  std::optional<RecordSize> largest;
  auto at = start.value_or(0);
  while (start && at < static_cast<std::uint64_t>(bytes)) {
    const std::string entry = bytes_at(file, at, kEntryBytes);
    if (entry.size() < kEntryBytes || !entry.starts_with("PK\x01\x02")) break;
    const auto name_bytes = number<std::uint16_t>(entry, 28);
    const auto more_bytes = number<std::uint16_t>(entry, 30);
    const std::string behind = bytes_at(file, at + kEntryBytes, name_bytes + more_bytes);
    const auto name = behind.substr(0, name_bytes);
    auto size = number<std::uint32_t>(entry, 24);
    if (size == UINT32_MAX && behind.size() > name_bytes)
      size = long_size(std::string_view(behind).substr(name_bytes), size);
    if (!largest || size > largest->bytes) largest = {name, size};
    at += kEntryBytes + name_bytes + more_bytes + number<std::uint16_t>(entry, 32);
  }
  return largest;
}

}  // namespace dtrain::models::exported
