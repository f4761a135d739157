#include "options/suggestion.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>

namespace dtrain::app {
namespace {

/// What other programs call an option.
constexpr std::array<std::pair<std::string_view, std::string_view>, 23> kOtherNames = {
    {{"lr", "learning-rate"},
     {"rate", "learning-rate"},
     {"batch-size", "global-batch"},
     {"batch", "global-batch"},
     {"bs", "global-batch"},
     {"gradient-accumulation", "micro-batches"},
     {"gradient-accumulation-steps", "micro-batches"},
     {"accumulate", "micro-batches"},
     {"num-epochs", "epochs"},
     {"max-epochs", "epochs"},
     {"max-steps", "limit-steps"},
     {"steps", "limit-steps"},
     {"wd", "weight-decay"},
     {"data", "dataset"},
     {"save-every", "checkpoint-every"},
     {"run-name", "name"},
     {"out", "output"},
     {"amp", "precision"},
     {"dtype", "precision"},
     {"allow-tf32", "tf32"},
     {"gpu", "device"},
     {"gpus", "device"},
     {"workers", "threads"}}};

/// Letters to insert, remove or replace (Levenshtein 1966), row by row.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  for (const auto& [other, ours] : kOtherNames)
    if (word == other && std::ranges::find(candidates, ours) != candidates.end()) return std::string(ours);
  std::string best;
  std::size_t best_distance = 2 + word.size() / 5;  // farther away it would be a guess
  for (const auto& candidate : candidates) {
    // A beginning is as good as a letter missing: `--batch` is no typing error but half a name.
    const bool part = word.size() >= 3 && candidate.find(word) != std::string::npos;
    const std::size_t distance = part ? 1 : edit_distance(word, candidate);
    // Of two that are as near the one that begins with the word: `--epoch` is not meant to be local.
    const bool begins =
        distance == best_distance && !best.empty() && candidate.starts_with(word) && !best.starts_with(word);
    if (distance >= best_distance && !begins) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace dtrain::app
