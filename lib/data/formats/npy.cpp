#include "data/formats/npy.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "core/checked_bytes.hpp"
#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "core/regular_file.hpp"
#include "data/shards/file_column.hpp"

namespace dtrain::data {
namespace {

constexpr std::int64_t kMostRowBytes = std::int64_t{1} << 40;
constexpr std::array<unsigned char, 6> kMagic = {0x93, 'N', 'U', 'M', 'P', 'Y'};

struct NpyHeader {
  std::string descr;  ///< E.g. `<f4`.
  std::vector<std::int64_t> shape;
  std::uint64_t data_offset = 0;
};

Error npy_error(std::string_view problem, const std::string& name) {
  return data_error(problem, name, "write it with numpy.save from a C-ordered array of numbers");
}

/// The text between `key` and what follows it, in the header's Python dictionary.
std::string after(const std::string& text, const std::string& key, const std::string& name) {
  const std::size_t at = text.find("'" + key + "':");
  if (at == std::string::npos) throw npy_error("has no " + key + " in its header", name);
  if (text.find("'" + key + "':", at + 1) != std::string::npos)
    throw npy_error("has " + key + " twice in its header", name);
  return text.substr(std::min(text.find_first_not_of(' ', at + key.size() + 3), text.size()));
}

/// An array in memory, in the words of ReadOnlyFile.
class Content {
 public:
  Content(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  std::uint64_t bytes() const { return bytes_.size(); }
  void read(std::uint64_t offset, std::size_t count, void* out) const {
    if (offset > bytes_.size() || count > bytes_.size() - offset) throw npy_error("is truncated", name_);
    std::memcpy(out, bytes_.data() + offset, count);
  }

 private:
  std::string_view bytes_;
  std::string name_;
};

template <typename File>
NpyHeader read_header(const File& file) {
  std::array<unsigned char, 12> start{};
  if (file.bytes() < start.size()) throw npy_error("is truncated", file.name());
  file.read(0, start.size(), start.data());
  if (!std::equal(kMagic.begin(), kMagic.end(), start.begin()))
    throw npy_error("is not a .npy file", file.name());
  const bool first_version = start[6] == 1;
  const std::size_t begin = first_version ? 10 : 12;
  std::size_t length = start[8] | static_cast<std::size_t>(start[9]) << 8;
  if (!first_version)
    length |= static_cast<std::size_t>(start[10]) << 16 | static_cast<std::size_t>(start[11]) << 24;
  if (begin + length > file.bytes()) throw npy_error("is truncated in its header", file.name());
  std::string text(length, ' ');
  file.read(begin, length, text.data());
  NpyHeader header{.data_offset = begin + length};
  const std::string descr = after(text, "descr", file.name());
  if (descr.empty() || descr[0] != '\'') throw npy_error("holds records, not numbers", file.name());
  header.descr = descr.substr(1, descr.find('\'', 1) - 1);
  if (!after(text, "fortran_order", file.name()).starts_with("False"))
    throw npy_error("is in Fortran order", file.name());
  std::string dims = after(text, "shape", file.name());
  dims = dims.substr(0, dims.find(')'));
  constexpr std::string_view kBetween = "( ,L";  // Python 2 wrote 3L
  for (std::size_t at = dims.find_first_not_of(kBetween); at != std::string::npos;
       at = dims.find_first_not_of(kBetween, at)) {
    const auto extent = leading_number<std::int64_t>(std::string_view(dims).substr(at));
    if (!extent || extent.value < 0) throw npy_error("has a shape that cannot be", file.name());
    header.shape.push_back(extent.value);
    at = dims.size() - extent.rest.size();
  }
  if (header.shape.empty()) throw npy_error("holds a single value, not an array", file.name());
  return header;
}

constexpr std::string_view kBooleans = "|b1";

/// The type that the file's numbers have; booleans are read as uint8. Nothing for one that is not read.
std::optional<ElementType> type_of(const std::string& descr) {
  const ElementFacts* const facts =
      descr == kBooleans ? &facts_of(ElementType::uint8) : find_element_type(&ElementFacts::npy, descr);
  return facts == nullptr ? std::nullopt : std::optional(facts->type);
}

/// Whether all are numbers that an int64 holds. Others are a regression's values.
template <typename Real>
bool all_whole(const std::vector<std::byte>& bytes) {
  constexpr double kMost = 9007199254740992.0;  // 2^53
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Real)) {
    Real value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    if (!(std::abs(value) <= kMost) || value != std::floor(value)) return false;
  }
  return true;
}

/// Throws data_error for a uint64 that an int64 does not hold.
void require_signed(const std::vector<std::byte>& bytes, const std::string& name) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    if (value > std::numeric_limits<std::int64_t>::max())
      throw npy_error("has the whole number " + std::to_string(value) + ", which is above 2^63", name);
  }
}

template <typename To, typename From>
void convert_as(const std::vector<std::byte>& bytes, HostArray& out) {
  const auto to = out.as<To>();
  for (std::size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    to[i] = static_cast<To>(value);
  }
}

template <typename To>
void convert_to(ElementType type, const std::vector<std::byte>& bytes, HostArray& out) {
  switch (type) {
    case ElementType::uint8:
      return convert_as<To, std::uint8_t>(bytes, out);
    case ElementType::int8:
      return convert_as<To, std::int8_t>(bytes, out);
    case ElementType::int16:
      return convert_as<To, std::int16_t>(bytes, out);
    case ElementType::uint16:
      return convert_as<To, std::uint16_t>(bytes, out);
    case ElementType::int32:
      return convert_as<To, std::int32_t>(bytes, out);
    case ElementType::uint32:
      return convert_as<To, std::uint32_t>(bytes, out);
    case ElementType::int64:
      return convert_as<To, std::int64_t>(bytes, out);
    case ElementType::uint64:
      return convert_as<To, std::uint64_t>(bytes, out);
    case ElementType::float32:
      return convert_as<To, float>(bytes, out);
    case ElementType::float64:
      return convert_as<To, double>(bytes, out);
    default:
      throw Error("cannot be converted", {.subject = std::string(element_name(type))});
  }
}

/// What the header says of the file, checked against its size.
struct Stored {
  NpyHeader header;
  ElementType type = ElementType::uint8;
  std::size_t item = 0;    ///< Bytes of an element.
  std::int64_t count = 0;  ///< Elements.
  std::vector<std::int64_t> row_shape;

  /// Whether the bytes of the file serve as they are.
  bool is_one_of(const std::vector<ElementType>& accepted) const {
    return header.descr != kBooleans && std::ranges::find(accepted, type) != accepted.end();
  }
};

template <typename File>
Stored read_stored(const File& file) {
  Stored stored{.header = read_header(file)};
  const auto& shape = stored.header.shape;
  stored.row_shape.assign(shape.begin() + 1, shape.end());
  const auto type = type_of(stored.header.descr);
  if (!type)
    throw npy_error("holds numbers of type " + stored.header.descr + ", which dtrain does not read",
                    file.name());
  stored.type = *type;
  stored.item = element_bytes(*type);
  const auto bytes = checked_bytes(shape, static_cast<std::int64_t>(stored.item),
                                   static_cast<std::int64_t>(file.bytes() - stored.header.data_offset));
  if (!bytes || !checked_bytes(stored.row_shape, sizeof(double), kMostRowBytes))
    throw npy_error("is truncated", file.name());
  stored.count = *bytes / static_cast<std::int64_t>(stored.item);
  return stored;
}

bool is_whole(ElementType type) { return type != ElementType::float32 && type != ElementType::float64; }

/// The first of `accepted` that any number can become.
ElementType wide_type_of(const std::vector<ElementType>& accepted, const std::string& name) {
  constexpr std::array kWide = {ElementType::float32, ElementType::float64, ElementType::int64};
  const auto wide = std::ranges::find_if(
      accepted, [&](ElementType type) { return std::ranges::find(kWide, type) != kWide.end(); });
  if (wide == accepted.end()) throw npy_error("holds numbers of another type than belong there", name);
  return *wide;
}

template <typename File>
std::shared_ptr<const Column> converted(const File& file, const Stored& stored,
                                        const std::vector<ElementType>& accepted) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(stored.count) * stored.item);
  file.read(stored.header.data_offset, bytes.size(), bytes.data());
  const bool fractions = (stored.type == ElementType::float64 && !all_whole<double>(bytes)) ||
                         (stored.type == ElementType::float32 && !all_whole<float>(bytes));
  const bool ids = is_whole(stored.type) && stored.header.descr != kBooleans &&
                   std::ranges::find(accepted, ElementType::int64) != accepted.end();
  const ElementType wide = ids ? ElementType::int64 : wide_type_of(accepted, file.name());
  const ElementType wanted = fractions && wide == ElementType::int64 ? ElementType::float32 : wide;
  HostArray array;
  array.reset(wanted, stored.header.shape);
  if (wanted == ElementType::float64) {
    convert_to<double>(stored.type, bytes, array);
  } else if (wanted == ElementType::int64) {
    if (stored.type == ElementType::uint64) require_signed(bytes, file.name());
    convert_to<std::int64_t>(stored.type, bytes, array);
  } else {
    convert_to<float>(stored.type, bytes, array);
  }
  return MemoryColumn::of(std::move(array));
}

}  // namespace

bool is_npy(const std::filesystem::path& file) {
  require_regular_file(file, ExitCode::data);
  std::ifstream stream(file, std::ios::binary);
  std::array<char, kMagic.size()> start{};
  return stream.read(start.data(), start.size()) &&
         std::memcmp(start.data(), kMagic.data(), kMagic.size()) == 0;
}

std::shared_ptr<const Column> open_npy(const std::filesystem::path& path,
                                       const std::vector<ElementType>& accepted) {
  const auto file = std::make_shared<const ReadOnlyFile>(path);
  const Stored stored = read_stored(*file);
  if (stored.count == 0 || !stored.is_one_of(accepted)) return converted(*file, stored, accepted);
  const std::int64_t rows = stored.header.shape[0];
  StoredLayout layout{.rows_per_chunk = rows, .chunks = {{.file_offset = stored.header.data_offset}}};
  return std::make_shared<FileColumn>(file, "array", stored.type, stored.row_shape, rows, std::move(layout),
                                      FileColumn::Keep::nothing);
}

std::shared_ptr<const Column> read_npy(std::string_view content, const std::string& name,
                                       const std::vector<ElementType>& accepted) {
  const Content file(content, name);
  const Stored stored = read_stored(file);
  if (!stored.is_one_of(accepted)) return converted(file, stored, accepted);
  HostArray array;
  array.reset(stored.type, stored.header.shape);
  file.read(stored.header.data_offset, array.bytes(), array.data());
  return MemoryColumn::of(std::move(array));
}

}  // namespace dtrain::data
