#include "state/initial_weights.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <regex>
#include <set>

#include "core/error.hpp"
#include "models/slicing/slices.hpp"
#include "state/dtypes.hpp"
#include "state/saved_state.hpp"

namespace dtrain::state {
namespace {

constexpr std::size_t kNamesShown = 5;

std::string some_of(const std::vector<std::string>& names) {
  if (names.size() <= kNamesShown) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kNamesShown, ", "),
                     names.size() - kNamesShown);
}

std::optional<std::regex> expression(const std::string& skip) {
  if (skip.empty()) return std::nullopt;
  try {
    return std::regex(skip);
  } catch (const std::regex_error&) {
    throw usage_error("is not a regular expression", "--init-skip " + skip,
                      "write one such as '^output_fc' in quotes");
  }
}

/// Where a rank's part of a tensor lies in the whole.
checkpoint::Runs runs_of(const models::HeldSlice& slice) {
  const auto dim = slice.view.begin() + slice.dim;
  const auto outer = std::accumulate(slice.view.begin(), dim, std::int64_t{1}, std::multiplies<>());
  const auto inner = std::accumulate(dim + 1, slice.view.end(), std::int64_t{1}, std::multiplies<>());
  return {.begin = slice.part.begin * inner,
          .length = slice.part.size() * inner,
          .stride = *dim * inner,
          .count = outer};
}

enum class Language { source, target };

/// Whether the words of a language are others, or not known to be the same where something differs.
bool differs(const checkpoint::VocabularyHashes& a, const checkpoint::VocabularyHashes& b,
             Language language) {
  if (a.all.empty() || b.all.empty() || a.all == b.all) return false;
  const auto& of_a = language == Language::source ? a.source : a.target;
  const auto& of_b = language == Language::source ? b.source : b.target;
  return of_a.empty() || of_a != of_b;
}

/// Two stages may have parts of one tensor.
void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

class Loading {
 public:
  Loading(const checkpoint::Weights& weights, bool goes_on, const std::string& skip,
          const std::string& subject)
      : weights_(weights), goes_on_(goes_on), skip_(expression(skip)), subject_(subject) {}

  /// Refuses tensors with a row for each word when the words are others. The layer that reads a pair's source
  /// is the first.
  void compare_vocabularies(const Destination& destination) const {
    const auto theirs = weights_.vocabulary();
    std::vector<std::string> names;
    auto language = Language::source;
    for (const auto& layer : destination.model.layers()) {
      for (const auto& parameter : layer->parameters()) {
        if (parameter.slicing == models::Slicing::vocabulary && weights_.find(parameter.name) != nullptr &&
            !skips(parameter.name) && differs(theirs, destination.vocabulary, language)) {
          names.push_back(parameter.name);
        }
      }
      language = Language::target;
    }
    if (names.empty()) return;
    throw checkpoint_error(
        "was trained with another vocabulary than that of the dataset " + destination.dataset, subject_,
        fmt::format("name the dataset it was trained on with --dataset, or {} --init-skip '{}'",
                    goes_on_ ? "start from its weights with --init-from and" : "train from it with",
                    fmt::join(names, "|")));
  }

  /// A value without memory belongs to another rank: its entry is checked all the same.
  void give(const std::string& name, at::Tensor& value,
            const std::shared_ptr<const models::HeldSlice>& slice) {
    const auto* entry = weights_.find(name);
    if (skips(name)) {
      add_once(skipped_, name);
      if (entry != nullptr) used_.insert(name);
      return;
    }
    if (entry == nullptr) {
      add_once(missing_, name);
      return;
    }
    used_.insert(name);
    const auto whole = models::whole_shape(value, slice);
    if (whole != entry->shape) {
      throw checkpoint_error(fmt::format("tensor {} has shape [{}], the model's [{}]", name,
                                         fmt::join(entry->shape, ", "), fmt::join(whole, ", ")),
                             subject_,
                             goes_on_ ? kOtherModel
                                      : "take weights of this model and dataset (its classes, vocabulary and "
                                        "--model-option values), or leave the tensor with --init-skip");
    }
    if (value.is_meta()) return;
    const auto stored = at::empty(value.sizes(), at::TensorOptions().dtype(dtype_of(entry->dtype, subject_)));
    const std::span<std::byte> memory(static_cast<std::byte*>(stored.data_ptr()), stored.nbytes());
    if (slice != nullptr) {
      weights_.read(*entry, runs_of(*slice), memory);
    } else {
      weights_.read(*entry, memory);
    }
    value.copy_(stored);
  }

  Unmatched finish() {
    if (!missing_.empty()) {
      throw checkpoint_error(
          fmt::format("lacks {} of the model's tensors: {}", missing_.size(), some_of(missing_)), subject_,
          goes_on_ ? kOtherModel : "take weights of this model, or leave those tensors with --init-skip");
    }
    Unmatched unmatched{.of_model = std::move(skipped_), .of_file = {}};
    for (const auto& entry : weights_.entries()) {
      if (!used_.contains(entry.name)) unmatched.of_file.push_back(entry.name);
    }
    return unmatched;
  }

 private:
  bool skips(const std::string& name) const { return skip_ && std::regex_search(name, *skip_); }

  static constexpr const char* kOtherModel =
      "a run that goes on keeps its model: give the model, the dataset and the --model-option values that it "
      "was trained with, or start from its weights with --init-from, and leave tensors with --init-skip";

  const checkpoint::Weights& weights_;
  bool goes_on_;
  const std::optional<std::regex> skip_;
  const std::string& subject_;
  std::set<std::string> used_;
  std::vector<std::string> skipped_;
  std::vector<std::string> missing_;
};

}  // namespace

std::string Unmatched::text() const {
  std::string line;
  if (!of_model.empty()) line += "left as they are: " + some_of(of_model);
  if (!of_file.empty()) line += (line.empty() ? "" : "; ") + ("not in the model: " + some_of(of_file));
  return line;
}

namespace {

/// The rectangle of `whole` that a rank holds.
at::Tensor shard_of(at::Tensor whole, const Slice& shard) {
  for (std::size_t dim = 0; dim < shard.offset.size(); ++dim)
    whole = whole.narrow(static_cast<std::int64_t>(dim), shard.offset[dim], shard.extent[dim]);
  return whole;
}

at::Tensor read_tensor(const checkpoint::CheckpointReader& checkpoint, const std::string& group,
                       const parallel::StateTensor& tensor) {
  const std::string name = group + "/" + tensor.name;
  const at::IntArrayRef shape = tensor.shard ? tensor.shard->global_shape : tensor.value.sizes();
  at::Tensor stored = at::empty(shape, tensor.value.options().device(at::kCPU));
  const std::span<std::byte> memory(static_cast<std::byte*>(stored.data_ptr()), stored.nbytes());
  const std::string dtype = dtype_name(stored.scalar_type());
  if (tensor.slice != nullptr) {
    checkpoint.read(name, dtype, runs_of(*tensor.slice), memory);
  } else {
    checkpoint.read(name, dtype, memory);
  }
  return tensor.shard ? shard_of(stored, *tensor.shard) : stored;
}

/// How many copies of the model have saved a value of their own; 0: there is one for all.
int copies_in(const checkpoint::CheckpointReader& checkpoint, const parallel::StateTensor& tensor) {
  int copies = 0;
  while (checkpoint.manifest().find(group_of_copy(tensor.group, copies) + "/" + tensor.name) != nullptr)
    ++copies;
  return copies;
}

at::Tensor sum_of_copies(const checkpoint::CheckpointReader& checkpoint, const parallel::StateTensor& tensor,
                         int copies) {
  at::Tensor sum;
  for (int index = 0; index < copies; ++index) {
    const auto value = read_tensor(checkpoint, group_of_copy(tensor.group, index), tensor).to(at::kDouble);
    sum = index == 0 ? value : sum + value;
  }
  return sum;
}

void require_state_of_optimizer(const checkpoint::CheckpointReader& checkpoint,
                                const parallel::StateTensor& tensor) {
  const std::string name = tensor.group + "/" + tensor.name;
  require(
      checkpoint.manifest().find(name) != nullptr,
      "the checkpoint lacks this state, which the update now needs: other options saved it",
      {.subject = checkpoint.folder().string() + ":" + name,
       .advice = "begin the optimizer's state anew, with --resume PATH and --optimizer-state reset, or give "
                 "--strategy, --momentum, --outer-optimizer, --overlap-steps and the like as they were",
       .code = ExitCode::checkpoint});
}

}  // namespace

std::set<std::string> load_optimizer(const checkpoint::CheckpointReader& checkpoint,
                                     const parallel::StateView& state) {
  const at::NoGradGuard no_grad;
  std::set<std::string> anew;
  for (const auto& tensor : state.places()) {
    if (!tensor.is_of_optimizer()) continue;
    at::Tensor place = tensor.value;
    const int copies = copies_in(checkpoint, tensor);
    const auto& copy = tensor.owner.copy;
    const bool is_there =
        copies > 0 || checkpoint.manifest().find(tensor.group + "/" + tensor.name) != nullptr;
    if (!is_there && !tensor.anew.empty()) {
      anew.insert(tensor.anew);
    } else if (copies == 0) {
      require_state_of_optimizer(checkpoint, tensor);
      place.copy_(read_tensor(checkpoint, tensor.group, tensor));
    } else if (copy && copy->count == copies) {
      place.copy_(read_tensor(checkpoint, group_of_copy(tensor.group, copy->index), tensor));
    } else {
      const int among = copy && copy->adds_up ? copy->count : copies;
      place.copy_(sum_of_copies(checkpoint, tensor, copies) / among);
    }
  }
  return anew;
}

bool load_what_outlives_reset(const checkpoint::CheckpointReader& checkpoint,
                              const parallel::StateView& state) {
  const at::NoGradGuard no_grad;
  bool found = false;
  for (const auto& tensor : state.places()) {
    if (!tensor.outlives_reset) continue;
    const auto& stored = checkpoint.manifest().tensors;
    const auto is_of_group = [&](const auto& entry) { return entry.name.starts_with(tensor.group + "/"); };
    if (std::ranges::none_of(stored, is_of_group)) continue;
    require(checkpoint.manifest().find(tensor.group + "/" + tensor.name) != nullptr,
            "the checkpoint accounts otherwise for what was released",
            {.subject = checkpoint.folder().string(),
             .advice = "give --strategy and --dp-unit as they were",
             .code = ExitCode::checkpoint});
    at::Tensor place = tensor.value;
    place.copy_(read_tensor(checkpoint, tensor.group, tensor));
    found = true;
  }
  return found;
}

Unmatched load_weights(const checkpoint::Weights& weights, const Destination& destination,
                       const std::string& skip, const std::string& subject) {
  const at::NoGradGuard no_grad;
  auto& model = destination.model;
  Loading loading(weights, destination.goes_on, skip, subject);
  loading.compare_vocabularies(destination);
  for (std::size_t layer = 0; layer < model.layers().size(); ++layer) {
    if (destination.open) destination.open(layer);
    for (auto& parameter : model.layers()[layer]->parameters())
      loading.give(parameter.name, parameter.value, parameter.slice);
    if (destination.close) destination.close(layer);
  }
  for (const auto& layer : model.layers()) {
    for (auto& buffer : layer->buffers()) loading.give(buffer.name, buffer.value, buffer.slice);
  }
  return loading.finish();
}

}  // namespace dtrain::state
