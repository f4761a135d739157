#include "data/text/sentencepiece_tokenizer.hpp"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "core/error.hpp"
#include "data/text/sentencepiece_model.hpp"

namespace dtrain::data {
namespace {

/// The trainer passes over longer sentences; a text is fed to it in stretches up to this, cut at spaces.
constexpr std::size_t kStretchBytes = 4000;

/// The library takes some 150 bytes for each byte that it is given at once.
constexpr std::size_t kMostBytesAtOnce = std::size_t{1} << 20;

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

/// What of a line is encoded at once: all, or up to the last space before a letter or digit, where no piece
/// crosses and the library's own leading space stands for this one; without such a space up to a character,
/// with which a new word begins then.
std::size_t bytes_at_once(std::string_view line) {
  if (line.size() <= kMostBytesAtOnce) return line.size();
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  for (std::size_t at = kMostBytesAtOnce; at > 0; --at)
    if (line[at - 1] == ' ' && plain(line[at])) return at;
  std::size_t at = kMostBytesAtOnce;
  while (at > 1 && !begins_character(line[at])) --at;
  return at;
}

/// Hands the texts to the trainer, stretch by stretch.
class Stretches final : public sentencepiece::SentenceIterator {
 public:
  explicit Stretches(const std::vector<std::string_view>& texts) : texts_(texts) { Next(); }
  bool done() const override { return done_; }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    while (index_ < texts_.size() && at_ >= texts_[index_].size()) {
      ++index_;
      at_ = 0;
    }
    done_ = index_ == texts_.size();
    if (done_) return;
    const std::string_view rest = texts_[index_].substr(at_);
    std::size_t bytes =
        std::min(rest.size(), rest.find('\n') == std::string_view::npos ? rest.size() : rest.find('\n') + 1);
    if (bytes > kStretchBytes) {
      const std::size_t space = rest.rfind(' ', kStretchBytes);
      bytes = space == std::string_view::npos || space == 0 ? kStretchBytes : space;
      while (bytes < rest.size() && !begins_character(rest[bytes])) ++bytes;
    }
    value_ = rest.substr(0, bytes);
    at_ += bytes;
  }

 private:
  const std::vector<std::string_view>& texts_;
  std::size_t index_ = 0;
  std::size_t at_ = 0;  // within the text
  bool done_ = false;
  std::string value_;
};

/// The library's reason in our words, where it is one of the two that a size can have.
Error refusal(std::int64_t vocabulary_size, const std::string& message) {
  const std::string subject = "--vocab-size " + std::to_string(vocabulary_size);
  constexpr std::string_view kLimit = "value <= ";
  if (const std::size_t at = message.find(kLimit); at != std::string::npos) {
    const std::string_view limit = std::string_view(message).substr(at + kLimit.size());
    return usage_error(
        "is more pieces than the text can fill", subject,
        "choose at most " + std::string(limit.substr(0, limit.find_first_not_of("0123456789"))));
  }
  if (message.find("smaller than required_chars") != std::string::npos)
    return usage_error("is less than the text has characters", subject, "choose a larger one");
  return usage_error("does not suit the text: " + message, subject, "choose another one");
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::string_view model) {
    check_sentencepiece_model(model);
    const auto status = processor_.LoadFromSerializedProto(model);
    const bool ours = status.ok() && processor_.pad_id() == kPaddingId && processor_.unk_id() == kUnknownId &&
                      processor_.bos_id() == kStartId && processor_.eos_id() == kEndId;
    if (!ours)
      throw data_error(status.ok() ? "has other special ids than dtrain's" : "is damaged",
                       "the dataset's SentencePiece model", "stage the dataset again");
  }

  std::int32_t size() const override { return processor_.GetPieceSize(); }
  std::string token(std::int32_t id) const override { return processor_.IdToPiece(id); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    std::vector<int> stretch_ids;
    for_each_stretch(text, [&](std::string_view stretch) {
      check(processor_.Encode(stretch, &stretch_ids));
      ids.insert(ids.end(), stretch_ids.begin(), stretch_ids.end());
    });
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::vector<int> known;
    for (const std::int32_t id : ids) {
      require(id >= 0 && id < size(), "there is no token of id " + std::to_string(id),
              {.subject = "the tokenizer", .advice = "use the dataset that the model was trained on"});
      known.push_back(id);
    }
    std::string text;
    check(processor_.Decode(known, &text));
    return text;
  }

  std::optional<std::string> first_unknown(std::string_view text) const override {
    std::optional<std::string> unknown;
    for_each_stretch(text, [&](std::string_view stretch) {
      std::vector<std::string> pieces;
      check(processor_.Encode(stretch, &pieces));
      for (const std::string& piece : pieces)
        if (!unknown && processor_.PieceToId(piece) == kUnknownId) unknown = piece;
    });
    return unknown;
  }

 private:
  /// Its lines, and long ones in parts.
  template <typename Take>
  static void for_each_stretch(std::string_view text, Take take) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      while (at < end) {
        const std::size_t bytes = bytes_at_once(text.substr(at, end - at));
        take(text.substr(at, bytes));
        at += bytes;
      }
      at = end + 1;
    }
  }

  static void check(const sentencepiece::util::Status& status) {
    require(status.ok(), status.ToString(),
            {.subject = "SentencePiece", .advice = "check the text", .code = ExitCode::data});
  }

  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

bool has_sentencepiece() { return true; }

std::string train_sentencepiece(const std::vector<std::string_view>& texts, std::int64_t vocabulary_size) {
  const std::unordered_map<std::string, std::string> options = {
      {"vocab_size", std::to_string(vocabulary_size)},
      {"pad_id", std::to_string(kPaddingId)},
      {"unk_id", std::to_string(kUnknownId)},
      {"bos_id", std::to_string(kStartId)},
      {"eos_id", std::to_string(kEndId)},
      {"pad_piece", std::string(kSpecialTokens[kPaddingId])},
      {"unk_piece", std::string(kSpecialTokens[kUnknownId])},
      {"bos_piece", std::string(kSpecialTokens[kStartId])},
      {"eos_piece", std::string(kSpecialTokens[kEndId])},
      {"unk_surface", std::string(kSpecialTokens[kUnknownId])},
      {"num_threads", "4"},  // fixed: each thread has sums of its own, so their number shows in the model
      {"minloglevel", "3"}};
  Stretches stretches(texts);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &stretches, &model);
  if (!status.ok()) throw refusal(vocabulary_size, status.ToString());
  return model;
}

std::unique_ptr<const Tokenizer> make_sentencepiece(std::string_view model) {
  return std::make_unique<SentencePieceTokenizer>(model);
}

}  // namespace dtrain::data
