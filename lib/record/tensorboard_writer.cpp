#include "record/tensorboard_writer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "core/error.hpp"
#include "core/own_place.hpp"
#include "record/run_folder.hpp"

namespace dtrain::record {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

// Rotated and shifted by a constant, because the CRC of data that contains a CRC is weak.
std::uint32_t masked_crc(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U; }

template <class T>
void append_bytes(std::string& text, T value) {  // little-endian, as every machine that runs dtrain
  std::array<char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &value, sizeof(T));
  text.append(bytes.data(), bytes.size());
}

// Protocol Buffers encoding: a varint, and the key of a field from its number and wire type.
void append_varint(std::string& text, std::uint64_t value) {
  for (; value >= 0x80U; value >>= 7U) text += static_cast<char>((value & 0x7FU) | 0x80U);
  text += static_cast<char>(value);
}

enum class Wire : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_key(std::string& text, unsigned field, Wire wire) {
  append_varint(text, (field << 3U) | static_cast<unsigned>(wire));
}

void append_text(std::string& text, unsigned field, std::string_view value) {
  append_key(text, field, Wire::bytes);
  append_varint(text, value.size());
  text += value;
}

double wall_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Event: 1 wall_time (double), 2 step (int64), 3 file_version (string), 5 summary.
std::string event_at(std::int64_t step) {
  std::string event;
  append_key(event, 1, Wire::fixed64);
  append_bytes(event, wall_time_s());
  append_key(event, 2, Wire::varint);
  append_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

// The parts of a message, one after the other. Ends at its end, and at the first byte that makes no sense.
class Fields {
 public:
  explicit Fields(std::string_view message) : left_(message) {}

  // Steps to the next field.
  bool next() {
    std::uint64_t key = 0;
    if (!varint(key)) return false;
    number = key >> 3U;
    value = 0;
    bytes = {};
    switch (static_cast<Wire>(key & 7U)) {
      case Wire::varint:
        return varint(value);
      case Wire::fixed64:
        return take(sizeof(double));
      case Wire::bytes:
        return varint(value) && take(value);
      case Wire::fixed32:
        return take(sizeof(float));
    }
    return false;
  }

  std::uint64_t number = 0;
  std::uint64_t value = 0;  // of a varint
  std::string_view bytes;   // of any other

 private:
  bool varint(std::uint64_t& result) {
    result = 0;
    for (unsigned shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      result |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80U) return true;
    }
    return false;
  }
  bool take(std::uint64_t count) {
    if (count > left_.size()) return false;
    bytes = left_.substr(0, static_cast<std::size_t>(count));
    left_.remove_prefix(static_cast<std::size_t>(count));
    return true;
  }
  std::string_view left_;
};

// Whether an event is a point that the run comes to again.
bool comes_again(std::string_view event, const Kept& kept) {
  std::uint64_t step = 0;
  std::string_view tag;
  for (Fields fields(event); fields.next();) {
    if (fields.number == 2) step = fields.value;
    if (fields.number != 5) continue;
    for (Fields values(fields.bytes); values.next();) {
      for (Fields point(values.bytes); point.next();) {
        if (point.number == 1) tag = point.bytes;
      }
    }
  }
  if (tag.empty()) return false;
  const bool by_step = tag.find("_by_step/") != std::string_view::npos;
  return static_cast<std::int64_t>(step) > (by_step ? kept.step : kept.epoch);
}

// The records of an event file without those that come again, and without a last one that a kill has cut.
std::string records_kept(std::string_view records, const Kept& kept) {
  constexpr std::size_t kBefore = sizeof(std::uint64_t) + sizeof(std::uint32_t);
  constexpr std::size_t kBehind = sizeof(std::uint32_t);
  std::string left;
  while (records.size() >= kBefore + kBehind) {
    std::uint64_t length = 0;
    std::memcpy(&length, records.data(), sizeof length);
    if (length > records.size() - kBefore - kBehind) break;
    const auto frame = records.substr(0, kBefore + static_cast<std::size_t>(length) + kBehind);
    if (!comes_again(frame.substr(kBefore, static_cast<std::size_t>(length)), kept)) left += frame;
    records.remove_prefix(frame.size());
  }
  return left;
}

// Curves are not worth a run: a file that cannot be read or replaced stays as it is.
void remove_points_that_come_again(const std::string& folder, const Kept& kept) {
  constexpr std::uintmax_t kMostBytes = std::uintmax_t{64} << 20;  // a million points
  std::error_code error;
  for (auto next = fs::directory_iterator(folder, error); !error && next != fs::directory_iterator();
       next.increment(error)) {
    const fs::directory_entry& entry = *next;
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("events.out.tfevents.")) continue;
    std::error_code ignored;
    if (name.ends_with(".partial")) {  // a kill left it: TensorBoard would read it, too
      fs::remove(entry.path(), ignored);
      continue;
    }
    const bool readable = entry.is_regular_file(ignored) && entry.file_size(ignored) <= kMostBytes;
    if (!readable) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string records((std::istreambuf_iterator<char>(file)), {});
    const std::string left = records_kept(records, kept);
    if (left.empty() || left.size() == records.size()) continue;
    try {
      replace_file(entry.path().string(), left);
    } catch (const Error&) {
      continue;
    }
  }
}

// A name that no other writer in this folder takes.
std::string event_file(const std::string& folder) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return free_name(fs::path(folder) / fmt::format("events.out.tfevents.{}.{}.{}",
                                                  static_cast<std::int64_t>(wall_time_s()), host.data(),
                                                  ::getpid()))
      .string();
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes)
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFFU] ^ (crc >> 8U);
  return ~crc;
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder, const std::optional<Kept>& kept)
    : path_(event_file(folder)) {
  if (kept) remove_points_that_come_again(folder, *kept);
  std::error_code error;
  fs::create_directories(folder, error);
  file_.reset(std::fopen(path_.c_str(), "wb"));
  if (file_ == nullptr) {
    throw usage_error(fmt::format("the event file cannot be created ({})", std::strerror(errno)), path_,
                      "name a folder that can be written with --output, or leave --tensorboard out");
  }
  std::string event = event_at(0);
  append_text(event, 3, "brain.Event:2");
  record(event);
}

void TensorBoardWriter::scalar(std::string_view tag, std::int64_t step, double value) {
  if (std::isnan(value)) return;
  std::string point;  // Summary.Value: 1 tag, 2 simple_value (float)
  append_text(point, 1, tag);
  append_key(point, 2, Wire::fixed32);
  append_bytes(point, static_cast<float>(value));
  std::string summary;  // Summary: 1 value
  append_text(summary, 1, point);
  std::string event = event_at(step);
  append_text(event, 5, summary);
  record(event);
}

void TensorBoardWriter::flush() {
  require(std::fflush(file_.get()) == 0, "cannot be written",
          {.subject = path_, .advice = "free disk space"});
}

// TFRecord: length (uint64), masked CRC of the length, data, masked CRC of the data.
void TensorBoardWriter::record(std::string_view message) {
  std::string frame;
  append_bytes(frame, static_cast<std::uint64_t>(message.size()));
  append_bytes(frame, masked_crc(frame));
  frame += message;
  append_bytes(frame, masked_crc(message));
  require(std::fwrite(frame.data(), 1, frame.size(), file_.get()) == frame.size(), "cannot be written",
          {.subject = path_, .advice = "free disk space"});
}

}  // namespace dtrain::record
