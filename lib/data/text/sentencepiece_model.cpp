#include "data/text/sentencepiece_model.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>

#include "core/error.hpp"
#include "data/text/unicode.hpp"

namespace dtrain::data {
namespace {

constexpr const char* kSubject = "the dataset's SentencePiece model";
constexpr std::size_t kLongestPiece = 1000;  // bytes; the trainer makes no longer ones than 16 letters
constexpr std::size_t kMostPieces = 10'000'000;

Error damage(const std::string& how) {
  return data_error("is damaged: " + how, kSubject, "stage the dataset again");
}

std::uint32_t word_at(std::string_view bytes, std::size_t index) {
  std::array<unsigned char, 4> word{};
  std::memcpy(word.data(), bytes.data() + 4 * index, 4);
  return word[0] | static_cast<std::uint32_t>(word[1]) << 8 | static_cast<std::uint32_t>(word[2]) << 16 |
         static_cast<std::uint32_t>(word[3]) << 24;
}

/// A field of a protocol buffer.
struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;  ///< Of numbers.
  std::string_view bytes;   ///< Of text and messages.
};

/// The fields of a message, one after another.
class MessageFields {
 public:
  explicit MessageFields(std::string_view message) : rest_(message) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const std::uint64_t key = number();
    Field field{.number = key >> 3};
    switch (key & 7) {
      case 0:
        field.value = number();
        return field;
      case 1:
        take(8);
        return field;
      case 2:
        field.bytes = take(number());
        return field;
      case 5:
        field.value = word_at(take(4), 0);
        return field;
      default:
        throw damage("it is no protocol buffer");
    }
  }

 private:
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw damage("it is no protocol buffer");
  }
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) throw damage("it ends too early");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
};

/// SentencePiece { piece = 1, score = 2, type = 3 }.
std::string piece_of(std::string_view message) {
  constexpr std::uint64_t kControl = 3;  // 1 normal, 2 unknown
  std::string text;
  MessageFields fields(message);
  while (const auto field = fields.next()) {
    if (field->number == 1) text = field->bytes;
    if (field->number == 2 && !std::isfinite(std::bit_cast<float>(static_cast<std::uint32_t>(field->value))))
      throw damage("a piece has no finite score");
    if (field->number == 3 && (field->value < 1 || field->value > kControl))
      throw damage("a piece is of a kind that dtrain does not make");
  }
  if (text.empty() || text.size() > kLongestPiece || text.find('\0') != std::string::npos)
    throw damage("a piece has " + std::to_string(text.size()) + " bytes, or a zero among them");
  require_utf8(text, kSubject);
  return text;
}

/// A double array as the library walks it. Each state lies where its 256 followers begin.
class Trie {
 public:
  Trie(std::string_view units, std::string_view texts)
      : units_(units), count_(units.size() / 4), texts_(texts) {}

  /// Throws unless every state that any text can reach, and its followers, lie inside.
  void check() const {
    std::vector<bool> seen(count_, false);
    std::vector<std::size_t> states;
    const auto reach = [&](std::size_t state) {
      if ((state | 0xFF) >= count_) throw damage("its table of letters leaves itself");
      if (seen[state]) return;
      seen[state] = true;
      states.push_back(state);
    };
    if (count_ == 0) throw damage("its table of letters is empty");
    reach(offset_of(word_at(units_, 0)));
    while (!states.empty()) {
      const std::size_t state = states.back();
      states.pop_back();
      for (std::size_t letter = 0; letter < 256; ++letter) {
        const std::size_t place = state ^ letter;
        const std::uint32_t unit = word_at(units_, place);
        if ((unit & 0x800000FFU) != letter) continue;
        const std::size_t next = place ^ offset_of(unit);
        reach(next);
        const bool has_value = ((unit >> 8) & 1U) != 0;
        if (has_value && (word_at(units_, next) & 0x7FFFFFFFU) >= texts_.size())
          throw damage("its table of letters names a text that is not there");
      }
    }
  }

 private:
  static std::size_t offset_of(std::uint32_t unit) {
    return std::size_t{unit >> 10} << ((unit & 0x200U) >> 6);
  }

  std::string_view units_;
  std::size_t count_;
  std::string_view texts_;
};

/// The bytes of the table's size, the table, and the texts that it names, each with a zero at its end.
void check_letters(std::string_view table) {
  if (table.empty()) return;  // letters stay as they are
  if (table.size() < 4) throw damage("its table of letters is cut");
  const std::size_t bytes = word_at(table, 0);
  table.remove_prefix(4);
  if (bytes % 4 != 0 || bytes >= table.size() || table.back() != '\0')
    throw damage("its table of letters is cut");
  Trie(table.substr(0, bytes), table.substr(bytes)).check();
}

/// NormalizerSpec { precompiled_charsmap = 2 }.
void check_normalizer(std::string_view message) {
  MessageFields fields(message);
  while (const auto field = fields.next())
    if (field->number == 2) check_letters(field->bytes);
}

/// TrainerSpec { model_type = 3 }.
void check_trainer(std::string_view message) {
  constexpr std::uint64_t kUnigram = 1;
  MessageFields fields(message);
  while (const auto field = fields.next())
    if (field->number == 3 && field->value != kUnigram) throw damage("it is no unigram model");
}

}  // namespace

std::vector<std::string> check_sentencepiece_model(std::string_view model) {
  std::vector<std::string> pieces;
  MessageFields fields(model);
  while (const auto field = fields.next()) {
    switch (field->number) {
      case 1:
        if (pieces.size() == kMostPieces) throw damage("it has too many pieces");
        pieces.push_back(piece_of(field->bytes));
        break;
      case 2:
        check_trainer(field->bytes);
        break;
      case 3:
      case 5:  // of decoding
        check_normalizer(field->bytes);
        break;
      default:
        throw damage("it has a part that dtrain does not make");
    }
  }
  if (pieces.empty()) throw damage("it has no pieces");
  return pieces;
}

void require_pieces(std::string_view model, const std::vector<std::string>& vocabulary) {
  if (check_sentencepiece_model(model) != vocabulary)
    throw data_error("has other pieces than the vocabulary beside it", kSubject, "stage the dataset again");
}

}  // namespace dtrain::data
