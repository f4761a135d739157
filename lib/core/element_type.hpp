#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dtrain {

/// What the elements of an array are, in memory and in files of any format.
enum class ElementType : std::uint8_t {
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,   ///< IEEE 754 binary16.
  bfloat16,  ///< The upper half of a float32.
  float32,
  float64,
  string,  ///< Of HDF5 alone, as are the two that follow.
  compound,
  other,
};

/// What there is to know of an element type. An empty name: files of that format have none, or none that is
/// read.
struct ElementFacts {
  ElementType type;
  std::string_view name;         ///< In messages, manifests and `--help`.
  std::size_t bytes;             ///< Of one element; 0 where that differs.
  bool in_checkpoints;           ///< A manifest may name it.
  std::string_view safetensors;  ///< Its name there.
  std::string_view npy;          ///< Its `descr` in .npy, little-endian.
};

/// In the order of ElementType.
inline constexpr std::array<ElementFacts, 15> kElementTypes = {
    {{ElementType::int8, "int8", 1, true, "I8", "|i1"},
     {ElementType::uint8, "uint8", 1, true, "U8", "|u1"},
     {ElementType::int16, "int16", 2, true, "I16", "<i2"},
     {ElementType::uint16, "uint16", 2, false, "", "<u2"},
     {ElementType::int32, "int32", 4, true, "I32", "<i4"},
     {ElementType::uint32, "uint32", 4, false, "", "<u4"},
     {ElementType::int64, "int64", 8, true, "I64", "<i8"},
     {ElementType::uint64, "uint64", 8, false, "", "<u8"},
     {ElementType::float16, "float16", 2, true, "F16", ""},
     {ElementType::bfloat16, "bfloat16", 2, false, "BF16", ""},
     {ElementType::float32, "float32", 4, true, "F32", "<f4"},
     {ElementType::float64, "float64", 8, true, "F64", "<f8"},
     {ElementType::string, "string", 0, false, "", ""},
     {ElementType::compound, "compound", 0, false, "", ""},
     {ElementType::other, "other", 0, false, "", ""}}};

constexpr const ElementFacts& facts_of(ElementType type) {
  return kElementTypes[static_cast<std::size_t>(type)];
}
constexpr std::string_view element_name(ElementType type) { return facts_of(type).name; }
constexpr std::size_t element_bytes(ElementType type) { return facts_of(type).bytes; }

/// The type that a format calls `name`; `format` is one of the names of ElementFacts. Null without one.
constexpr const ElementFacts* find_element_type(std::string_view ElementFacts::*format,
                                                std::string_view name) {
  const auto* const found = std::ranges::find(kElementTypes, name, format);
  return name.empty() || found == kElementTypes.end() ? nullptr : found;
}

}  // namespace dtrain
