#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizer.hpp"
#include "h5/library.hpp"
#include "inference/sampling.hpp"
#include "models/networks/gpt.hpp"
#include "models/networks/translate.hpp"
#include "train/config/config.hpp"
#include "train/setup/job.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::inference {

/// A trained model of text and the vocabulary it was trained with, for evaluation only, cut into stages as
/// the job's mesh says. Copies along the data axis all do the same.
class TextModel {
 public:
  /// The weights that config.model.init_from names. Collective over the job, here as below, with the same
  /// arguments on every rank. Throws Error: exit code 2 for a model that has no text, 3 for the dataset, 4
  /// for weights or a vocabulary that do not fit.
  TextModel(const train::RunConfig& config, train::Job& job, h5::Library& library);

  /// Whether this rank says what was found: one of the job does.
  bool speaks() const;

  /// Hands `prompt` and then each further token's text to `write` as it comes, up to `tokens` of them, or
  /// until the end token. Beyond the model's block only the last half block of the text is kept.
  /// Throws Error (exit code 2) when the model does not generate, the prompt is empty, has a token that is
  /// not in the vocabulary or is longer than the block.
  void generate(const std::string& prompt, int tokens, const SamplingConfig& sampling,
                const std::function<void(std::string_view)>& write);

  /// Translations of the lines, in their order, on the rank that speaks. `beam`: hypotheses kept; 1: the
  /// likeliest word each time.
  /// Throws Error: exit code 2 when the model does not translate, 3 for a line that is not UTF-8 or empty,
  /// naming `subject` and the line.
  std::vector<std::string> translate(const std::vector<std::string>& lines, int beam,
                                     const std::string& subject);

 private:
  bool holds(int stage) const;
  void hand_on(models::Tensors& values, int to_stage);
  std::int32_t next_token(const std::vector<std::int32_t>& read, models::GptCache& cache,
                          const std::function<std::int32_t(const at::Tensor&)>& choose);
  std::vector<models::Sentence> translated(const std::vector<std::vector<std::int32_t>>& sentences, int beam);

  train::Job& job_;
  train::Workload workload_;
  std::unique_ptr<const data::Tokenizer> source_;
  std::unique_ptr<const data::Tokenizer> target_;
};

}  // namespace dtrain::inference
