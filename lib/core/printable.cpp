#include "core/printable.hpp"

#include <algorithm>
#include <vector>

namespace dtrain {
namespace {

constexpr std::string_view kGap = "...";

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

/// Bytes of the character that begins here; 0: none does. Source: RFC 3629, section 4.
std::size_t character_bytes(std::string_view text) {
  const auto at = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE0 && first < 0xF0 ? 3 : 4;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return 0;
  if (!std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(bytes), continues)) return 0;
  const unsigned second = at(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second > 0x9F;
  const bool beyond = first == 0xF4 && second > 0x8F;
  return overlong || surrogate || beyond ? 0 : bytes;
}

/// C0, DEL and C1, the last as the two bytes that UTF-8 makes of them.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return character.size() == 2 && first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

void append_escaped(std::string_view bytes, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char byte : bytes) {
    const auto code = static_cast<unsigned char>(byte);
    out += "\\x";
    out += kDigits[code >> 4U];
    out += kDigits[code & 15U];
  }
}

/// What a message shows of a text.
struct Shown {
  std::string text;
  std::vector<std::size_t> begins;  ///< Of each character in `text`; what is escaped together is not cut.
};

Shown shown(std::string_view text) {
  Shown result;
  while (!text.empty()) {
    const std::size_t valid = character_bytes(text);
    const std::size_t bytes = std::max<std::size_t>(valid, 1);
    const bool escaped = valid == 0 || is_control(text.substr(0, bytes));
    result.begins.insert(result.begins.end(), escaped ? 4 * bytes : 1, result.text.size());
    if (escaped) {
      append_escaped(text.substr(0, bytes), result.text);
    } else {
      result.text += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text, std::size_t most) {
  // Of a text of gigabytes only its ends are looked at: no character has more than four bytes.
  const std::size_t end_bytes = 4 * (most + 4);
  std::string ends;
  if (text.size() > 4 * end_bytes) {
    ends = text.substr(0, end_bytes);
    std::size_t tail = text.size() - end_bytes;
    while (tail < text.size() && continues(text[tail])) ++tail;
    ends += text.substr(tail);
    text = ends;
  }
  Shown all = shown(text);
  if (all.begins.size() <= most) return all.text;
  const std::size_t kept = most > kGap.size() ? most - kGap.size() : 0;
  const std::size_t before = kept - kept / 3;
  const std::size_t behind = kept / 3;
  const std::size_t tail = behind == 0 ? all.text.size() : all.begins[all.begins.size() - behind];
  return all.text.substr(0, all.begins[before]) + std::string(kGap) + all.text.substr(tail);
}

std::string printable_sentence(std::string_view text, std::size_t most_of_a_word) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    result += printable(text.substr(0, end), most_of_a_word);
    const std::size_t next = std::min(text.find_first_not_of(' ', end), text.size());
    result += text.substr(end, next - end);
    text.remove_prefix(next);
  }
  return result;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace dtrain
