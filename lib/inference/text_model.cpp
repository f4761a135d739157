#include "inference/text_model.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "core/error.hpp"
#include "data/text/unicode.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::inference {
namespace {

constexpr std::int64_t kLongestTranslation = 100;  // words, unless the training had longer sentences
constexpr std::size_t kSentences = 64;             // translated together

train::Workload open_workload(const train::RunConfig& config, train::Job& job, h5::Library& library) {
  auto workload = train::make_workload(config, train::place_of(job), library);
  require(workload.dataset.info().tokenizer.has_value(), "was not trained on text",
          {.subject = config.model.init_from, .advice = "use dtrain evaluate", .code = ExitCode::usage});
  return workload;
}

/// `named`: the model of dtrain's own that does it.
void require_model(const models::Model& model, const std::string& named, const std::string& what,
                   const std::string& option) {
  const auto advice =
      model.program_hash().empty()
          ? "use a checkpoint of " + named
          : fmt::format(
                "only dtrain's own {} does: read the weights with dtrain export, and do it in PyTorch",
                named);
  require(model.name() == named && model.program_hash().empty(),
          fmt::format("the model {} does not {}", model.name(), what),
          {.subject = option, .advice = advice, .code = ExitCode::usage});
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

TextModel::TextModel(const train::RunConfig& config, train::Job& job, h5::Library& library)
    : job_(job), workload_(open_workload(config, job, library)) {
  const auto& info = workload_.dataset.info();
  source_ = data::make_tokenizer(*info.tokenizer, data::Side::source);
  target_ = info.tokenizer->target_vocabulary.empty()
                ? nullptr
                : data::make_tokenizer(*info.tokenizer, data::Side::target);
}

bool TextModel::holds(int stage) const {
  return workload_.cuts.rank_of(stage) == job_.mesh().coordinates(job_.rank()).pipe;
}

bool TextModel::speaks() const {
  return holds(workload_.cuts.stages() - 1) && job_.groups().data().rank() == 0 &&
         job_.speaks_for_tensor_group();
}

/// `values` of the stage before become those of `to_stage`; elsewhere memory of their shapes.
void TextModel::hand_on(models::Tensors& values, int to_stage) {
  const bool from_here = holds(to_stage - 1);
  if (from_here == holds(to_stage)) return;
  auto& pipe = job_.groups().pipe();
  for (at::Tensor& value : values) {
    value = value.contiguous();
    const comm::Buffer buffer{value.data_ptr(), static_cast<std::size_t>(value.numel()),
                              parallel::data_type_of(value.scalar_type())};
    auto handle = from_here ? pipe.send(buffer, workload_.cuts.rank_of(to_stage))
                            : pipe.receive(buffer, workload_.cuts.rank_of(to_stage - 1));
    handle.wait();
  }
}

/// The token that follows those in the cache and `read`, which the cache has not seen: the same on all ranks.
std::int32_t TextModel::next_token(const std::vector<std::int32_t>& read, models::GptCache& cache,
                                   const std::function<std::int32_t(const at::Tensor&)>& choose) {
  auto& model = *workload_.model;
  const auto type = model.parameters().front()->value.scalar_type();
  const auto length = static_cast<std::int64_t>(read.size());
  at::Tensor ids = at::empty({1, length}, at::kInt);
  std::ranges::copy(read, ids.data_ptr<std::int32_t>());
  const auto& cuts = workload_.cuts;
  models::Tensors flowing = {ids};
  for (int stage = 0; stage < cuts.stages(); ++stage) {
    if (stage > 0 && !holds(stage - 1)) flowing = {at::empty({1, length, models::width_of(model)}, type)};
    if (stage > 0) hand_on(flowing, stage);
    if (!holds(stage)) continue;
    flowing = {models::read_tokens(model, cuts.layers[static_cast<std::size_t>(stage)], flowing[0], cache)};
  }
  const int last = cuts.stages() - 1;
  std::int32_t token = holds(last) ? choose(flowing[0][0]) : 0;
  job_.groups().pipe().broadcast(comm::Buffer::of(std::span(&token, 1)), cuts.rank_of(last)).wait();
  return token;
}

void TextModel::generate(const std::string& prompt, int tokens, const SamplingConfig& sampling,
                         const std::function<void(std::string_view)>& write) {
  auto& model = *workload_.model;
  require_model(model, "gpt", "go on with a text", "--prompt");
  const at::NoGradGuard no_grad;
  std::vector<std::int32_t> ids = source_->encode_strictly(prompt, "--prompt");
  const auto block = static_cast<std::size_t>(models::block_length(model));
  require(!ids.empty(), "is empty",
          {.subject = "--prompt", .advice = "begin the text with a word", .code = ExitCode::usage});
  require(ids.size() <= block,
          fmt::format("has {} tokens, but the model looks back on {}", ids.size(), block),
          {.subject = "--prompt", .advice = "shorten it", .code = ExitCode::usage});
  // A block of the training may be shorter: nothing has trained the positions behind it. A long prompt needs
  // them.
  const auto trained = std::min(block, static_cast<std::size_t>(workload_.dataset.info().shape.at(0)));
  const std::size_t window = std::max(trained, ids.size());
  write(prompt);
  std::size_t written = source_->decode(ids).size();
  models::GptCache cache;
  std::vector<std::int32_t> read = ids;  // what the cache has not seen
  std::size_t seen = 0;
  const auto choose = [&](const at::Tensor& logits) {
    return sample_token(logits, sampling, static_cast<std::uint32_t>(ids.size()));
  };
  for (int i = 0; i < tokens; ++i) {
    if (seen + read.size() > window) {  // positions are absolute: begin anew with what fits
      cache = {};
      read.assign(ids.end() - static_cast<std::ptrdiff_t>(std::max<std::size_t>(trained / 2, 1)), ids.end());
      seen = 0;
    }
    const auto token = next_token(read, cache, choose);
    seen += read.size();
    if (source_->has_special_ids() && token == data::kEndId) break;
    ids.push_back(token);
    read = {token};
    const std::string text = source_->decode(ids);  // a token's text may depend on its neighbours
    write(std::string_view(text).substr(std::min(written, text.size())));
    written = text.size();
  }
}

/// On the rank of the decoder; elsewhere none.
std::vector<models::Sentence> TextModel::translated(const std::vector<std::vector<std::int32_t>>& sentences,
                                                    int beam) {
  auto& model = *workload_.model;
  const int decoder = workload_.cuts.stages() - 1;
  const auto longest = std::max(kLongestTranslation, workload_.dataset.info().shape.at(0));
  const auto encode = [&](const std::vector<std::vector<std::int32_t>>& together) {
    models::Tensors state = holds(0)
                                ? models::encode(model, rows_of(together))
                                : models::room_for_encoded(model, static_cast<std::int64_t>(together.size()),
                                                           model.parameters().front()->value.scalar_type());
    if (decoder > 0) hand_on(state, decoder);
    return state;
  };
  if (beam == 1) {
    const auto state = encode(sentences);
    return holds(decoder) ? models::translate_greedily(model, state, longest)
                          : std::vector<models::Sentence>{};
  }
  std::vector<models::Sentence> found;
  for (const auto& sentence : sentences) {
    const auto state = encode({sentence});
    if (holds(decoder)) found.push_back(models::translate_by_beam(model, state, beam, longest));
  }
  return found;
}

std::vector<std::string> TextModel::translate(const std::vector<std::string>& lines, int beam,
                                              const std::string& subject) {
  auto& model = *workload_.model;
  require_model(model, "seq2seq", "translate", "--translate");
  require(
      target_ != nullptr, "the dataset has one language",
      {.subject = "--translate", .advice = "use a checkpoint of pairs of texts", .code = ExitCode::usage});
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
    const auto found = translated(together, beam);
    for (std::size_t i = 0; i < found.size(); ++i) {
      translations[order[first + i]] = target_->decode(found[i]);
    }
  }
  return translations;
}

}  // namespace dtrain::inference
