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
#include <system_error>

#include "core/error.hpp"

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

// A name that a second writer in the same second and folder does not take.
std::string event_file(const std::string& folder) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return (fs::path(folder) / fmt::format("events.out.tfevents.{}.{}.{}",
                                         static_cast<std::int64_t>(wall_time_s()), host.data(), ::getpid()))
      .string();
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes)
    crc = kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFFU] ^ (crc >> 8U);
  return ~crc;
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder) : path_(event_file(folder)) {
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
