#include "data/import/text_originals.hpp"

#include <algorithm>
#include <string_view>

#include "core/error.hpp"
#include "data/text/corpus.hpp"
#include "data/text/unicode.hpp"

namespace dtrain::data {
namespace {

constexpr std::int64_t kDocumentVocabulary = 25'000;
constexpr std::int64_t kPairFrequency = 2;
constexpr std::int64_t kBlockLength = 256;

template <typename T>
std::shared_ptr<const Column> column_of(ElementType type, std::vector<T> values) {
  const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  return std::make_shared<MemoryColumn>(type, std::vector<std::int64_t>{},
                                        static_cast<std::int64_t>(owner->size()),
                                        reinterpret_cast<const std::byte*>(owner->data()), owner);
}

void append_columns(std::vector<std::shared_ptr<const Column>>& columns, EncodedTexts texts) {
  columns.push_back(column_of(ElementType::int32, std::move(texts.tokens)));
  columns.push_back(column_of(ElementType::int64, std::move(texts.offsets)));
}

/// The options with the defaults of documents by word and the like filled in.
CorpusOptions corpus_options(const TextOptions& options, const char* default_kind) {
  return {.kind = options.tokenizer.empty() ? default_kind : options.tokenizer,
          .vocabulary_size = options.vocabulary_size,
          .min_frequency = std::max<std::int64_t>(options.min_frequency, 1),
          .max_length = options.max_length};
}

std::vector<std::string_view> views_of(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

}  // namespace

Originals classified_originals(const std::map<std::string, ClassifiedTexts>& splits,
                               std::vector<std::string> classes, const TextOptions& options,
                               const SplitRule& rule) {
  std::map<std::string, std::int64_t> samples;
  std::map<std::string, std::vector<std::string_view>> texts;
  for (const auto& [split, documents] : splits) {
    samples[split] = static_cast<std::int64_t>(documents.texts.size());
    texts[split] = views_of(documents.texts);
  }
  CorpusOptions how = corpus_options(options, "word");
  if (how.kind == "word" && how.vocabulary_size == 0) how.vocabulary_size = kDocumentVocabulary;
  const auto plan = plan_splits(samples, splits.at("train").targets, rule);
  EncodedCorpus corpus = encode_corpus(texts, plan.at("train").ids, how);

  Originals found{
      .task = "text_classification",
      .classes = std::move(classes),
      .shape = {corpus.longest},
      .tokenizer = TokenizerInfo{
          .kind = how.kind, .vocabulary = std::move(corpus.vocabulary), .model = std::move(corpus.model)}};
  for (auto& [split, encoded] : corpus.splits) {
    append_columns(found.splits[split], std::move(encoded));
    found.splits[split].push_back(column_of(ElementType::int64, splits.at(split).targets));
  }
  return found;
}

Originals translation_originals(const std::map<std::string, TextPairs>& splits, const TextOptions& options,
                                const SplitRule& rule) {
  std::map<std::string, std::int64_t> samples;
  std::map<std::string, std::vector<std::string_view>> sources;
  std::map<std::string, std::vector<std::string_view>> targets;
  for (const auto& [split, pairs] : splits) {
    samples[split] = static_cast<std::int64_t>(pairs.sources.size());
    sources[split] = views_of(pairs.sources);
    targets[split] = views_of(pairs.targets);
  }
  CorpusOptions how = corpus_options(options, "word");
  how.frame = CorpusOptions::Frame::start_and_end;
  if (options.min_frequency == 0) how.min_frequency = kPairFrequency;
  const auto plan = plan_splits(samples, {}, rule);
  EncodedCorpus source = encode_corpus(sources, plan.at("train").ids, how);
  EncodedCorpus target = encode_corpus(targets, plan.at("train").ids, how);

  Originals found{.task = "translation",
                  .shape = {std::max(source.longest, target.longest)},
                  .tokenizer = TokenizerInfo{.kind = how.kind,
                                             .vocabulary = std::move(source.vocabulary),
                                             .target_vocabulary = std::move(target.vocabulary),
                                             .model = std::move(source.model),
                                             .target_model = std::move(target.model)}};
  for (const auto& [split, pairs] : splits) {
    append_columns(found.splits[split], std::move(source.splits[split]));
    append_columns(found.splits[split], std::move(target.splits[split]));
  }
  return found;
}

namespace {

/// Byte at which the last tenth of the characters begins; between words unless `kind` is char.
std::size_t begin_of_last_tenth(std::string_view text, std::string_view kind) {
  const auto begins_character = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; };
  const auto characters = static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
  std::size_t left = characters / 10 * 9 + characters % 10 * 9 / 10;
  std::size_t at = 0;
  for (; left > 0; --left) at += code_point_at(text, at).bytes;
  if (kind == "char") return at;
  while (at < text.size() && kind_of(code_point_at(text, at).value) != CharacterKind::space)
    at += code_point_at(text, at).bytes;
  return at;
}

}  // namespace

Originals running_originals(std::map<std::string, std::string> splits, const TextOptions& options,
                            const std::string& subject) {
  CorpusOptions how = corpus_options(options, "char");
  how.max_length = 0;  // it is the length of a block
  how.special_ids = CorpusOptions::SpecialIds::where_needed;
  if (!splits.contains("validation")) {
    std::string& train = splits.at("train");
    const std::size_t cut = begin_of_last_tenth(train, how.kind);
    splits["validation"] = train.substr(cut);
    train.resize(cut);
  }
  std::map<std::string, std::vector<std::string_view>> texts;
  for (const auto& [split, text] : splits) texts[split] = {text};
  const std::vector<std::int64_t> whole = {0};
  EncodedCorpus corpus = encode_corpus(texts, whole, how);
  const std::int64_t block = options.max_length > 0 ? options.max_length : kBlockLength;
  Originals found{
      .task = "language_modelling",
      .shape = {block},
      .tokenizer = TokenizerInfo{
          .kind = how.kind, .vocabulary = std::move(corpus.vocabulary), .model = std::move(corpus.model)}};
  for (auto& [split, encoded] : corpus.splits) {
    if (std::ssize(encoded.tokens) <= block)
      throw data_error("has only " + std::to_string(encoded.tokens.size()) + " tokens in split " + split +
                           ", and a block takes " + std::to_string(block) + " and the one after",
                       subject, "give more text, or shorter blocks with --max-length");
    found.splits[split] = {column_of(ElementType::int32, std::move(encoded.tokens))};
  }
  return found;
}

}  // namespace dtrain::data
