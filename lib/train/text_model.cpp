#include "train/text_model.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "data/unicode.hpp"
#include "data/vocabulary_hash.hpp"
#include "models/gpt.hpp"
#include "models/translate.hpp"

namespace dtrain::train {
namespace {

constexpr std::int64_t kLongestTranslation = 100;  // words
constexpr std::size_t kSentences = 64;             // translated together

Workload open_workload(const RunConfig& config, h5::Library& library) {
  auto workload = make_workload(config, {}, library);
  require(workload.dataset.info().tokenizer.has_value(), "was not trained on text",
          {.subject = config.model.init_from, .advice = "use dtrain evaluate", .code = ExitCode::usage});
  return workload;
}

/// int32 [n, T]: start, the words and end of each sentence, padded.
at::Tensor rows_of(const std::vector<std::vector<std::int32_t>>& sentences) {
  std::size_t longest = 0;
  for (const auto& ids : sentences) longest = std::max(longest, ids.size());
  auto rows = at::zeros({static_cast<std::int64_t>(sentences.size()), static_cast<std::int64_t>(longest) + 2},
                        at::kInt);
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    auto* row = rows[static_cast<std::int64_t>(i)].data_ptr<std::int32_t>();
    *row++ = data::kStartId;
    row = std::copy(sentences[i].begin(), sentences[i].end(), row);
    *row = data::kEndId;
  }
  return rows;
}

}  // namespace

TextModel::TextModel(const RunConfig& config, const std::string& vocabulary, h5::Library& library)
    : workload_(open_workload(config, library)) {
  const auto& info = workload_.dataset.info();
  if (!vocabulary.empty() && vocabulary != data::vocabulary_hash(info)) {
    throw checkpoint_error("was trained with another vocabulary than that of the dataset " + info.name,
                           config.model.init_from, "name the dataset it was trained on with --dataset");
  }
  source_ = data::make_tokenizer(*info.tokenizer, data::Side::source);
  target_ = info.tokenizer->target_vocabulary.empty()
                ? nullptr
                : data::make_tokenizer(*info.tokenizer, data::Side::target);
}

void TextModel::generate(const std::string& prompt, int tokens, const SamplingConfig& sampling,
                         const std::function<void(std::string_view)>& write) {
  auto& model = *workload_.model;
  require(model.name() == "gpt", fmt::format("the model {} does not go on with a text", model.name()),
          {.subject = "--prompt", .advice = "use a checkpoint of gpt", .code = ExitCode::usage});
  const at::NoGradGuard no_grad;
  std::vector<std::int32_t> ids = source_->encode_strictly(prompt, "--prompt");
  const auto block = static_cast<std::size_t>(models::block_length(model));
  require(!ids.empty(), "is empty",
          {.subject = "--prompt", .advice = "begin the text with a word", .code = ExitCode::usage});
  require(ids.size() <= block,
          fmt::format("has {} tokens, but the model looks back on {}", ids.size(), block),
          {.subject = "--prompt", .advice = "shorten it", .code = ExitCode::usage});
  write(prompt);
  std::size_t written = source_->decode(ids).size();
  models::GptCache cache;
  std::vector<std::int32_t> read = ids;  // what the cache has not seen
  std::size_t seen = 0;
  for (int i = 0; i < tokens; ++i) {
    if (seen + read.size() > block) {  // positions are absolute: begin anew with what fits
      cache.clear();
      read.assign(ids.end() - static_cast<std::ptrdiff_t>(std::max<std::size_t>(block / 2, 1)), ids.end());
      seen = 0;
    }
    const auto input =
        at::tensor(at::IntArrayRef(std::vector<std::int64_t>(read.begin(), read.end())), at::kInt);
    const auto logits = models::next_logits(model, input.unsqueeze(0), cache);
    seen += read.size();
    const auto token = sample_token(logits[0], sampling, static_cast<std::uint32_t>(ids.size()));
    if (source_->has_special_ids() && token == data::kEndId) break;
    ids.push_back(token);
    read = {token};
    const std::string text = source_->decode(ids);  // a token's text may depend on its neighbours
    write(std::string_view(text).substr(std::min(written, text.size())));
    written = text.size();
  }
}

std::vector<std::string> TextModel::translate(const std::vector<std::string>& lines, int beam,
                                              const std::string& subject) {
  auto& model = *workload_.model;
  require(model.name() == "seq2seq" && target_ != nullptr,
          fmt::format("the model {} does not translate", model.name()),
          {.subject = "--translate", .advice = "use a checkpoint of seq2seq", .code = ExitCode::usage});
  const at::NoGradGuard no_grad;
  std::vector<std::vector<std::int32_t>> sentences;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    data::require_utf8(lines[i], fmt::format("{}, line {}", subject, i + 1));
    sentences.push_back(source_->encode(lines[i]));
    if (sentences.back().empty())
      throw data_error("is empty", fmt::format("{}, line {}", subject, i + 1), "remove the line");
  }
  // Sentences of like length together: less padding, and the short ones end early.
  std::vector<std::size_t> order(lines.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return sentences[i].size(); });
  std::vector<std::string> translations(lines.size());
  for (std::size_t first = 0; first < order.size(); first += kSentences) {
    const auto end = std::min(first + kSentences, order.size());
    std::vector<std::vector<std::int32_t>> together;
    for (auto i = first; i < end; ++i) together.push_back(sentences[order[i]]);
    const auto rows = rows_of(together);
    std::vector<models::Sentence> found;
    if (beam == 1) {
      found = models::translate_greedily(model, rows, kLongestTranslation);
    } else {
      for (std::size_t i = 0; i < together.size(); ++i) {
        found.push_back(models::translate_by_beam(model, rows_of({together[i]}), beam, kLongestTranslation));
      }
    }
    for (auto i = first; i < end; ++i) translations[order[i]] = target_->decode(found[i - first]);
  }
  return translations;
}

}  // namespace dtrain::train
