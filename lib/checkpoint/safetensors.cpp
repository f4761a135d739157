#include "checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/file_io.hpp"
#include "core/element_type.hpp"
#include "core/error.hpp"
#include "core/nesting.hpp"
#include "core/outside.hpp"

namespace dtrain::checkpoint {
namespace {

constexpr std::int64_t kLargestHeader = 100'000'000;  // as the format's own reader has it
constexpr std::size_t kMostValues = 1'000'000;        // five or so of each tensor
constexpr const char* kTakeAnotherCopy = "take another copy";
Error damaged(const std::filesystem::path& file, const std::string& how) {
  return checkpoint_error("is not a whole safetensors file: " + how, file.string(), kTakeAnotherCopy);
}

std::string our_type(const std::string& theirs, const std::filesystem::path& file) {
  if (const auto* const facts = find_element_type(&ElementFacts::safetensors, theirs))
    return std::string(facts->name);
  throw checkpoint_error(fmt::format("holds elements of type {}, which dtrain does not read", theirs),
                         file.string(), "save it with F32");
}

/// Notices a name that is twice in the outermost object: the parser itself would keep the last.
class TensorNames final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool has_twice() const { return twice_; }

  bool key(string_t& name) override {
    twice_ = twice_ || (depth_ == 1 && !names_.insert(name).second);
    return !twice_;
  }
  bool start_object(std::size_t) override { return ++depth_ > 0; }
  bool end_object() override { return depth_-- > 0; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;  // json::parse() says what is wrong
  }

 private:
  int depth_ = 0;
  bool twice_ = false;
  std::set<std::string> names_;
};

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
    if (const auto problem = refused_json(text, {.values = kMostValues}); !problem.empty())
      throw damaged(file, "its header " + problem);
    const ErrorContext context{
        .subject = file.string(), .advice = kTakeAnotherCopy, .code = ExitCode::checkpoint};
    understand_from_outside(context, [&] { read_header(text, file); });
    check_layout(file, bytes - begin_);
  }

  const std::vector<WeightEntry>& entries() const override { return entries_; }
  void read(const WeightEntry& entry, std::span<std::byte> out) const override {
    file_.read_at(begin_ + places_.at(entry.name), out);
  }

 private:
  void read_header(const std::string& text, const std::filesystem::path& file) {
    TensorNames names;  // by itself: with a callback the parser takes time with the square of their number
    nlohmann::json::sax_parse(text, &names);
    if (names.has_twice()) throw damaged(file, "it has a tensor twice");
    const auto header = nlohmann::json::parse(text);
    if (!header.is_object()) throw damaged(file, "its header lists no tensors");
    for (const auto& [name, facts] : header.items()) {
      if (name != "__metadata__") add(name, facts, file);
    }
    std::ranges::sort(entries_, {}, [&](const WeightEntry& entry) {  // as they lie, not by name
      return std::pair(places_.at(entry.name), entry.name);
    });
  }

  void add(const std::string& name, const nlohmann::json& facts, const std::filesystem::path& file) {
    for (const char* field : {"shape", "data_offsets"}) {
      for (const auto& number : facts.at(field).get<std::vector<nlohmann::json>>())
        if (!number.is_number_unsigned())
          throw damaged(file, fmt::format("the tensor {} has no {}", name, field));
    }
    WeightEntry entry{.name = name,
                      .dtype = our_type(facts.at("dtype").get<std::string>(), file),
                      .shape = facts.at("shape").get<std::vector<std::int64_t>>()};
    const auto offsets = facts.at("data_offsets").get<std::array<std::int64_t, 2>>();
    if (offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1] - offsets[0] != entry.bytes())
      throw damaged(file, fmt::format("the tensor {} has other bytes than its shape says", name));
    places_[name] = offsets[0];
    entries_.push_back(std::move(entry));
  }

  /// The tensors fill the data without hole or overlap, as the format wants it.
  void check_layout(const std::filesystem::path& file, std::int64_t data_bytes) const {
    std::vector<std::pair<std::int64_t, std::int64_t>> parts;
    for (const auto& entry : entries_) {
      const auto begin = places_.at(entry.name);
      parts.emplace_back(begin, begin + entry.bytes());
    }
    std::ranges::sort(parts);
    std::int64_t at = 0;
    for (const auto& [begin, end] : parts) {
      if (begin < at) throw damaged(file, "tensors overlap in it");
      if (begin > at) throw damaged(file, "it has bytes that belong to no tensor");
      at = end;
    }
    if (at > data_bytes) throw damaged(file, "a tensor leaves it");
    if (at < data_bytes) throw damaged(file, "it has bytes that belong to no tensor");
  }

  RawFile file_;
  std::int64_t begin_ = 0;  ///< Of the data.
  std::vector<WeightEntry> entries_;
  std::map<std::string, std::int64_t> places_;
};

}  // namespace

std::string safetensors_type(const std::string& dtype) {
  const auto* const facts = find_element_type(&ElementFacts::name, dtype);
  if (facts != nullptr && !facts->safetensors.empty()) return std::string(facts->safetensors);
  throw checkpoint_error("safetensors has no such type", dtype, "export to .h5");
}

std::unique_ptr<const Weights> open_safetensors(const std::filesystem::path& file) {
  return std::make_unique<Safetensors>(file);
}

}  // namespace dtrain::checkpoint
