#include "models/networks/nbow.hpp"

#include <fmt/format.h>

#include "models/layers/embedding_bag.hpp"
#include "models/layers/linear.hpp"
#include "models/losses/losses.hpp"
#include "models/networks/classifier.hpp"
#include "models/options.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

std::unique_ptr<Model> make_nbow(const DatasetFacts& facts, const ModelOptions& options) {
  refuse_unknown("nbow", options, {"embedding", "max-tokens"});
  loss_of(facts, "nbow", {Loss::cross_entropy});
  if (facts.task != "text_classification" || facts.vocabulary < 1 || facts.classes < 1) {
    throw usage_error(
        fmt::format("the model nbow takes texts with classes, not samples of shape {} for the task {}",
                    shape_text(facts.sample_shape), facts.task),
        "--model nbow", "use another --model or --dataset");
  }
  const std::int64_t columns = size_option(options, "embedding", 300);
  const std::int64_t longest = size_option(options, "max-tokens", 256);
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<EmbeddingBag>("embedding", facts.vocabulary, columns, longest));
  layers.push_back(std::make_unique<Linear>("fc", columns, facts.classes));
  return std::make_unique<Classifier>("nbow", std::move(layers), facts.classes);
}

}  // namespace

Registration nbow() { return {"nbow", {.dataset = "imdb", .options = {{"epochs", "5"}}}, &make_nbow}; }

}  // namespace dtrain::models
