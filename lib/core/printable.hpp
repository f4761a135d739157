#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dtrain {

/// Characters that a message quotes of a text that others wrote.
inline constexpr std::size_t kMostForeignCharacters = 300;

/// Text that others wrote, as a message may show it: control characters (line ends too) and bytes that are
/// not UTF-8 become `\xNN`, and of a text with more than `most` characters the middle becomes `...`.
std::string printable(std::string_view text, std::size_t most = kMostForeignCharacters);

/// The same for a sentence of ours that quotes others: only words of more than `most_of_a_word` characters
/// are cut.
std::string printable_sentence(std::string_view text, std::size_t most_of_a_word = 200);

bool is_utf8(std::string_view text);

}  // namespace dtrain
