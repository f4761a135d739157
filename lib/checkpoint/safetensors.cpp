#include "checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "checkpoint/file_io.hpp"
#include "core/error.hpp"

namespace dtrain::checkpoint {
namespace {

constexpr std::int64_t kLargestHeader = 100'000'000;  // as the format's own reader has it
constexpr std::array<std::pair<std::string_view, const char*>, 9> kTypes = {{{"float64", "F64"},
                                                                             {"float32", "F32"},
                                                                             {"float16", "F16"},
                                                                             {"bfloat16", "BF16"},
                                                                             {"int64", "I64"},
                                                                             {"int32", "I32"},
                                                                             {"int16", "I16"},
                                                                             {"int8", "I8"},
                                                                             {"uint8", "U8"}}};

Error damaged(const std::filesystem::path& file, const std::string& how) {
  return checkpoint_error("is not a whole safetensors file: " + how, file.string(), "take another copy");
}

std::string our_type(const std::string& theirs, const std::filesystem::path& file) {
  for (const auto& [ours, name] : kTypes) {
    if (theirs == name) return std::string(ours);
  }
  throw checkpoint_error(fmt::format("holds elements of type {}, which dtrain does not read", theirs),
                         file.string(), "save it with F32");
}

class Safetensors final : public Weights {
 public:
  using Weights::read;
  explicit Safetensors(const std::filesystem::path& file) : file_(file, RawFile::Access::read) {
    const std::int64_t bytes = file_.bytes();
    if (bytes < 8) throw damaged(file, "it has no header");
    std::array<std::byte, 8> length_bytes;
    file_.read_at(0, length_bytes);
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < 8; ++i) length |= static_cast<std::uint64_t>(length_bytes[i]) << (8 * i);
    if (length > static_cast<std::uint64_t>(std::min(kLargestHeader, bytes - 8))) {
      throw damaged(file, fmt::format("its header would have {} bytes", length));
    }
    begin_ = 8 + static_cast<std::int64_t>(length);
    std::string text(static_cast<std::size_t>(length), '\0');
    file_.read_at(8, std::as_writable_bytes(std::span(text)));
    try {
      const auto header = nlohmann::ordered_json::parse(text);
      for (const auto& [name, facts] : header.items()) {
        if (name != "__metadata__") add(name, facts, file, bytes);
      }
    } catch (const nlohmann::json::exception& error) {
      throw damaged(file, error.what());
    }
  }

  const std::vector<WeightEntry>& entries() const override { return entries_; }
  void read(const WeightEntry& entry, std::span<std::byte> out) const override {
    file_.read_at(begin_ + places_.at(entry.name), out);
  }

 private:
  void add(const std::string& name, const nlohmann::ordered_json& facts, const std::filesystem::path& file,
           std::int64_t file_bytes) {
    WeightEntry entry{.name = name,
                      .dtype = our_type(facts.at("dtype").get<std::string>(), file),
                      .shape = facts.at("shape").get<std::vector<std::int64_t>>()};
    const auto offsets = facts.at("data_offsets").get<std::array<std::int64_t, 2>>();
    const bool fits =
        offsets[0] >= 0 && offsets[1] - offsets[0] == entry.bytes() && begin_ + offsets[1] <= file_bytes;
    if (!fits) throw damaged(file, fmt::format("the tensor {} leaves it", name));
    places_[name] = offsets[0];
    entries_.push_back(std::move(entry));
  }

  RawFile file_;
  std::int64_t begin_ = 0;  ///< Of the data.
  std::vector<WeightEntry> entries_;
  std::map<std::string, std::int64_t> places_;
};

}  // namespace

const char* safetensors_type(const std::string& dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) return theirs;
  }
  throw checkpoint_error("safetensors has no such type", dtype, "export to .h5");
}

std::unique_ptr<const Weights> open_safetensors(const std::filesystem::path& file) {
  return std::make_unique<Safetensors>(file);
}

}  // namespace dtrain::checkpoint
