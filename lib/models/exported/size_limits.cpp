#include "models/exported/size_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "models/exported/size_condition.hpp"

namespace dtrain::models::exported {
namespace {

// PyTorch takes each size for at least 2, which changes nothing for one sample in most programs.
constexpr std::int64_t kLeastAssumed = 2;
constexpr std::array<std::int64_t, 12> kBatchesTried = {2, 3, 4, 5, 7, 8, 16, 31, 64, 100, 257, 1000};
constexpr std::array<std::int64_t, 12> kLengthsTried = {2, 3, 4, 5, 7, 8, 16, 31, 64, 100, 257, 1000};

/// A dim of an input that varies.
struct InputDim {
  std::size_t dim;
  std::int64_t given;  // of the dataset, the longest where that varies
  bool varies;         // from batch to batch
  std::string words;   // for messages
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

class SizeCheck {
 public:
  SizeCheck(const PlannedProgram& planned, bool texts, const std::vector<Shape>& given) {
    const auto& graph = planned.program.graph();
    const auto& inputs = planned.plan.user_inputs;
    conditions_ = graph.conditions;
    for (std::size_t i = 0; i < inputs.size() && i < given.size(); ++i) {
      const auto& value = graph[inputs[i]];
      for (std::size_t dim = 0; dim < value.tensor->sizes.size() && dim < given[i].size(); ++dim) {
        const InputDim made{.dim = dim,
                            .given = given[i][dim],
                            .varies = texts && dim == 1,
                            .words = dim == 0 ? "batch" : fmt::format("{}.shape[{}]", value.name, dim)};
        dims_.emplace(fmt::format("L['{}'].size()[{}]", value.name, dim), made);
        const auto symbol = value.tensor->sizes[dim].symbol();
        if (!symbol || !dims_.emplace(*symbol, made).second || dim == 0) continue;
        const auto range = graph.ranges.find(*symbol);
        if (range == graph.ranges.end()) continue;
        if (range->second.least > kLeastAssumed)
          conditions_.push_back(fmt::format("{} >= {}", *symbol, range->second.least));
        if (range->second.most) conditions_.push_back(fmt::format("{} <= {}", *symbol, *range->second.most));
      }
    }
  }

  /// The first condition that a batch of the dataset may break, in words.
  std::string broken() const {
    for (const auto& condition : conditions_) {
      for (const std::int64_t batch : kBatchesTried) {
        for (const std::int64_t length : kLengthsTried) {
          const auto kept = holds(condition, [&](std::string_view name) -> std::optional<double> {
            const auto place = dims_.find(name);
            if (place == dims_.end()) return std::nullopt;
            return static_cast<double>(size_of(place->second, batch, length));
          });
          if (!kept) return in_words(condition);
          if (!*kept) return fmt::format("{}, and not {}", in_words(condition), sizes(batch, length));
        }
      }
    }
    return {};
  }

 private:
  static std::int64_t size_of(const InputDim& dim, std::int64_t batch, std::int64_t length) {
    if (dim.dim == 0) return batch;
    return dim.varies ? std::min(length, dim.given) : dim.given;
  }

  std::string in_words(std::string condition) const {
    // Last first: s231 before s23.
    for (auto place = dims_.rbegin(); place != dims_.rend(); ++place)
      condition = replaced(std::move(condition), place->first, place->second.words);
    return printable(condition, 200);
  }

  std::string sizes(std::int64_t batch, std::int64_t length) const {
    std::map<std::string, std::int64_t> named;
    for (const auto& [name, dim] : dims_) {
      if (dim.dim == 0 || name.front() != 'L') named.emplace(dim.words, size_of(dim, batch, length));
    }
    std::string text;
    for (const auto& [words, size] : named)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", printable(words, 50), size);
    return text;
  }

  std::map<std::string, InputDim, std::less<>> dims_;  // by their names in conditions
  std::vector<std::string> conditions_;
};

}  // namespace

void require_any_batch(const PlannedProgram& planned) {
  const auto& graph = planned.program.graph();
  for (const ValueId input : planned.plan.user_inputs) {
    const auto& sizes = graph[input].tensor->sizes;
    if (sizes.empty() || sizes[0].constant()) continue;
    const auto symbol = sizes[0].symbol();
    std::string takes = "some batches only";
    if (symbol) {
      const auto range = graph.ranges.find(*symbol);
      if (range == graph.ranges.end()) continue;
      const auto& [least, most] = range->second;
      if (least <= kLeastAssumed && !most) continue;
      takes = most ? fmt::format("batches of {} to {} samples only", least, *most)
                   : fmt::format("batches of at least {} samples only", least);
    }
    throw usage_error(
        fmt::format("takes {}, as its input {} says", takes, printable(graph[input].name, 50)),
        "--model " + planned.program.file(),
        "export it with dynamic_shapes and Dim(\"batch\", min=2) for dim 0, as jobs/export_model.py does: "
        "where the module depends on the batch, both say by what");
  }
}

std::string remark_on_sizes(const PlannedProgram& planned, const DatasetFacts& facts,
                            const std::vector<Shape>& given) {
  if (planned.program.was_in_training()) return {};  // jobs/export_model.py has run it with such sizes
  const bool texts = facts.task == "text_classification" || facts.task == "translation";
  const auto condition = SizeCheck(planned, texts, given).broken();
  if (condition.empty()) return {};
  return fmt::format(
      "warning: PyTorch exported it for {}; of other sizes it may compute something else than its module, "
      "which jobs/export_model.py would find: export it with that",
      condition);
}

}  // namespace dtrain::models::exported
