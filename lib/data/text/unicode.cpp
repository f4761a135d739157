#include "data/text/unicode.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "core/error.hpp"

namespace dtrain::data {
namespace {

struct Block {
  char32_t first;
  char32_t last;
};

/// Ascending.
constexpr std::array<Block, 8> kSpaces = {{{0x80, 0xA0},
                                           {0xAD, 0xAD},  // the soft hyphen shows nothing
                                           {0x1680, 0x1680},
                                           {0x2000, 0x200F},
                                           {0x2028, 0x202F},
                                           {0x205F, 0x206F},
                                           {0x3000, 0x3000},
                                           {0xFEFF, 0xFEFF}}};  // the byte order mark

constexpr std::array<Block, 17> kSymbols = {{{0xA1, 0xA9},
                                             {0xAB, 0xB4},
                                             {0xB6, 0xB9},
                                             {0xBB, 0xBF},
                                             {0xD7, 0xD7},
                                             {0xF7, 0xF7},
                                             {0x2010, 0x2BFF},
                                             {0x2E00, 0x2E7F},
                                             {0x3001, 0x303F},
                                             {0xFE10, 0xFE1F},
                                             {0xFE30, 0xFE6F},
                                             {0xFF01, 0xFF0F},
                                             {0xFF1A, 0xFF20},
                                             {0xFF3B, 0xFF40},
                                             {0xFF5B, 0xFF65},
                                             {0xFFE0, 0xFFEE},
                                             {0x1F000, 0x1FAFF}}};

/// Capitals first, first + step, ..., last, each `distance` below its small letter.
struct Capitals {
  char32_t first;
  char32_t last;
  char32_t step;
  std::int32_t distance;
};

/// Ascending. Source: the Unicode Character Database, simple lower-case mappings.
constexpr std::array<Capitals, 33> kCapitals = {
    {{0xC0, 0xD6, 1, 32},    {0xD8, 0xDE, 1, 32},    {0x100, 0x12E, 2, 1},       {0x130, 0x130, 1, -199},
     {0x132, 0x136, 2, 1},   {0x139, 0x147, 2, 1},   {0x14A, 0x176, 2, 1},       {0x178, 0x178, 1, -121},
     {0x179, 0x17D, 2, 1},   {0x1A0, 0x1A4, 2, 1},   {0x1AF, 0x1AF, 1, 1},       {0x1CD, 0x1DB, 2, 1},
     {0x1DE, 0x1EE, 2, 1},   {0x1F8, 0x21E, 2, 1},   {0x222, 0x232, 2, 1},       {0x386, 0x386, 1, 38},
     {0x388, 0x38A, 1, 37},  {0x38C, 0x38C, 1, 64},  {0x38E, 0x38F, 1, 63},      {0x391, 0x3A1, 1, 32},
     {0x3A3, 0x3AB, 1, 32},  {0x400, 0x40F, 1, 80},  {0x410, 0x42F, 1, 32},      {0x460, 0x480, 2, 1},
     {0x48A, 0x4BE, 2, 1},   {0x4C0, 0x4C0, 1, 15},  {0x4C1, 0x4CD, 2, 1},       {0x4D0, 0x52E, 2, 1},
     {0x531, 0x556, 1, 48},  {0x1E00, 0x1E94, 2, 1}, {0x1E9E, 0x1E9E, 1, -7615}, {0x1EA0, 0x1EFE, 2, 1},
     {0xFF21, 0xFF3A, 1, 32}}};

/// The block that holds `character`, of blocks in ascending order; null when none does.
template <typename Blocks>
auto block_of(const Blocks& blocks, char32_t character) {
  const auto* found = std::lower_bound(blocks.data(), blocks.data() + blocks.size(), character,
                                       [](const auto& block, char32_t c) { return block.last < c; });
  return found != blocks.data() + blocks.size() && found->first <= character ? found : nullptr;
}

/// Bytes of the character whose first byte is `lead`; 0 for a byte that begins none.
std::size_t bytes_announced(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

bool is_character(std::string_view bytes) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  for (std::size_t i = 1; i < bytes.size(); ++i)
    if ((at(i) & 0xC0) != 0x80) return false;
  switch (at(0)) {  // where the second byte has less room: overlong, surrogate, beyond the last
    case 0xE0:
      return at(1) >= 0xA0;
    case 0xED:
      return at(1) < 0xA0;
    case 0xF0:
      return at(1) >= 0x90;
    case 0xF4:
      return at(1) < 0x90;
    default:
      return true;
  }
}

}  // namespace

std::size_t first_invalid_byte(std::string_view text) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080ULL;
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = 0;
    if (text.size() - at >= sizeof(word)) {  // most text is ASCII: eight bytes at a glance
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & kHighBits) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const std::size_t bytes = bytes_announced(static_cast<unsigned char>(text[at]));
    if (bytes == 0 || text.size() - at < bytes || !is_character(text.substr(at, bytes))) return at;
    at += bytes;
  }
  return std::string_view::npos;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

void require_utf8(std::string_view text, const std::string& origin) {
  const std::size_t at = first_invalid_byte(text);
  if (at == std::string_view::npos) return;
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  throw data_error("is not UTF-8: byte " + std::to_string(at + 1) + ", in line " + std::to_string(line) +
                       ", belongs to no character",
                   origin, "convert it, e.g. with 'iconv -f LATIN1 -t UTF-8'");
}

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

void append_utf8(char32_t character, std::string& text) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (character >> shift & 0x3F)); };
  if (character < 0x80) {
    text += static_cast<char>(character);
  } else if (character < 0x800) {
    text += static_cast<char>(0xC0 | character >> 6);
    tail(0);
  } else if (character < 0x10000) {
    text += static_cast<char>(0xE0 | character >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | character >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

CharacterKind kind_of(char32_t character) {
  if (character < 0x80) {
    if (character <= ' ' || character == 0x7F) return CharacterKind::space;
    const char32_t small = character | 0x20;
    const bool word = (small >= 'a' && small <= 'z') || (character >= '0' && character <= '9');
    return word ? CharacterKind::word : CharacterKind::symbol;
  }
  if (block_of(kSpaces, character) != nullptr) return CharacterKind::space;
  return block_of(kSymbols, character) != nullptr ? CharacterKind::symbol : CharacterKind::word;
}

char32_t lower_case(char32_t character) {
  if (character < 0x80) return character >= 'A' && character <= 'Z' ? character + 32 : character;
  const Capitals* found = block_of(kCapitals, character);
  if (found == nullptr || (character - found->first) % found->step != 0) return character;
  return static_cast<char32_t>(static_cast<std::int32_t>(character) + found->distance);
}

}  // namespace dtrain::data
