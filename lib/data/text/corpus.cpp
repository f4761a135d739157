#include "data/text/corpus.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "data/text/listed_tokenizer.hpp"
#include "data/text/sentencepiece_tokenizer.hpp"
#include "data/text/token_table.hpp"

namespace dtrain::data {
namespace {

using Texts = std::map<std::string, std::vector<std::string_view>>;

constexpr std::int64_t kSentencePieces = 8000;  // unless --vocab-size says otherwise

/// Collects the ids of texts, each in its frame and cut to the limit.
class Framer {
 public:
  Framer(const CorpusOptions& options, EncodedCorpus& corpus) : options_(options), corpus_(corpus) {}

  /// Ids without the frame that a text may have.
  std::size_t room() const {
    if (options_.max_length == 0) return std::numeric_limits<std::size_t>::max();
    return static_cast<std::size_t>(options_.max_length - (framed() ? 2 : 0));
  }

  template <typename Ids>
  void add(EncodedTexts& out, const Ids& ids) {
    if (framed()) out.tokens.push_back(kStartId);
    const std::size_t count = std::min(ids.size(), room());
    out.tokens.insert(out.tokens.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    if (framed()) out.tokens.push_back(kEndId);
    const auto total = static_cast<std::int64_t>(out.tokens.size());
    corpus_.longest = std::max(corpus_.longest, total - out.offsets.back());
    out.offsets.push_back(total);
  }

 private:
  bool framed() const { return options_.frame == CorpusOptions::Frame::start_and_end; }
  const CorpusOptions& options_;
  EncodedCorpus& corpus_;
};

/// How often each number occurs in the texts the vocabulary is learned from.
std::vector<std::int64_t> count_tokens(const EncodedTexts& train, std::span<const std::int64_t> learned_from,
                                       std::int32_t numbers) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(numbers), 0);
  for (const std::int64_t text : learned_from)
    for (std::int64_t at = train.offsets[text]; at < train.offsets[text + 1]; ++at)
      ++counts[static_cast<std::size_t>(train.tokens[at])];
  return counts;
}

/// The numbers that get an id, in the order of their ids.
std::vector<std::int32_t> chosen_numbers(const TokenTable& table, const std::vector<std::int64_t>& counts,
                                         const CorpusOptions& options) {
  std::vector<std::int32_t> numbers;
  for (std::int32_t number = kSpecialIds; number < table.size(); ++number)
    if (counts[number] >= std::max<std::int64_t>(options.min_frequency, 1)) numbers.push_back(number);
  std::sort(numbers.begin(), numbers.end(), [&](std::int32_t a, std::int32_t b) {
    return counts[a] != counts[b] ? counts[a] > counts[b] : table.token(a) < table.token(b);
  });
  const auto room =
      static_cast<std::size_t>(std::max<std::int64_t>(options.vocabulary_size - kSpecialIds, 0));
  if (options.vocabulary_size > 0 && numbers.size() > room) numbers.resize(room);
  if (options.kind == "char")  // UTF-8 sorts like the characters themselves
    std::sort(numbers.begin(), numbers.end(),
              [&](std::int32_t a, std::int32_t b) { return table.token(a) < table.token(b); });
  return numbers;
}

/// Tokens are looked up once: first they get numbers in the order in which they come, then the ids of the
/// vocabulary take the numbers' place. Numbers 0 to 3 are the special tokens.
EncodedCorpus encode_listed(const Texts& splits, std::span<const std::int64_t> learned_from,
                            const TokenRule& rule, const CorpusOptions& options) {
  EncodedCorpus corpus;
  Framer framer(options, corpus);
  TokenTable table;
  for (const std::string_view special : kSpecialTokens) table.add(special);
  std::string scratch;
  std::vector<std::string_view> tokens;
  std::vector<std::int32_t> numbers;
  for (const auto& [split, texts] : splits) {
    EncodedTexts& out = corpus.splits[split];
    for (const std::string_view text : texts) {
      tokens.clear();
      rule.split(text, scratch, tokens);
      if (tokens.size() > framer.room()) tokens.resize(framer.room());
      numbers.clear();
      for (const std::string_view token : tokens) numbers.push_back(table.add(token));
      framer.add(out, numbers);
    }
  }

  const auto counts = count_tokens(corpus.splits["train"], learned_from, table.size());
  const auto chosen = chosen_numbers(table, counts, options);
  const bool complete = chosen.size() + kSpecialIds == static_cast<std::size_t>(table.size());
  const bool special_ids = options.special_ids == CorpusOptions::SpecialIds::always ||
                           options.kind != "char" || options.frame != CorpusOptions::Frame::none || !complete;
  std::vector<std::int32_t> id_of_number(static_cast<std::size_t>(table.size()), kUnknownId);
  if (special_ids) {
    std::iota(id_of_number.begin(), id_of_number.begin() + kSpecialIds, 0);
    corpus.vocabulary.assign(std::begin(kSpecialTokens), std::end(kSpecialTokens));
  }
  for (const std::int32_t number : chosen) {
    id_of_number[static_cast<std::size_t>(number)] = static_cast<std::int32_t>(corpus.vocabulary.size());
    corpus.vocabulary.push_back(table.token(number));
  }
  for (auto& [split, encoded] : corpus.splits)
    for (std::int32_t& token : encoded.tokens) token = id_of_number[static_cast<std::size_t>(token)];
  return corpus;
}

EncodedCorpus encode_sentencepieces(const Texts& splits, std::span<const std::int64_t> learned_from,
                                    const CorpusOptions& options) {
  EncodedCorpus corpus;
  std::vector<std::string_view> learned;
  for (const std::int64_t text : learned_from) learned.push_back(splits.at("train")[text]);
  corpus.model =
      train_sentencepiece(learned, options.vocabulary_size > 0 ? options.vocabulary_size : kSentencePieces);
  const auto tokenizer = make_sentencepiece(corpus.model);
  for (std::int32_t id = 0; id < tokenizer->size(); ++id) corpus.vocabulary.push_back(tokenizer->token(id));
  Framer framer(options, corpus);
  for (const auto& [split, texts] : splits)
    for (const std::string_view text : texts) framer.add(corpus.splits[split], tokenizer->encode(text));
  return corpus;
}

}  // namespace

EncodedCorpus encode_corpus(const Texts& splits, std::span<const std::int64_t> learned_from,
                            const CorpusOptions& options) {
  if (options.kind == "sentencepiece") return encode_sentencepieces(splits, learned_from, options);
  const auto rule = rule_of_kind(options.kind);
  if (!rule)
    throw usage_error("does not know '" + options.kind + "'", "--tokenizer",
                      "use word, char or sentencepiece");
  return encode_listed(splits, learned_from, *rule, options);
}

}  // namespace dtrain::data
