#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/reader.hpp"
#include "checkpoint/weights.hpp"
#include "models/model.hpp"
#include "parallel/strategy/state_view.hpp"

namespace dtrain::state {

/// What `--init-from` found no counterpart for.
struct Unmatched {
  std::vector<std::string> of_model;  ///< Tensors that keep their own start, as `--init-skip` asked.
  std::vector<std::string> of_file;   ///< Tensors the model does not have.

  std::string text() const;  ///< One line; empty when everything matched.
};

/// What the weights are for.
struct Destination {
  models::Model& model;
  const std::string& dataset;                      ///< As the user named it.
  const checkpoint::VocabularyHashes& vocabulary;  ///< Of the dataset.
  bool goes_on = false;                            ///< The weights are this run's own: it takes all of them.
  /// Called before and after the parameters of each layer (index in the model) are written. Empty: they have
  /// memory anyway.
  std::function<void(std::size_t layer)> open = {};
  std::function<void(std::size_t layer)> close = {};
};

/// Gives the model's parameters and buffers the tensors of the same names, converted to the model's dtype,
/// but for names that the regular expression `skip` finds; an empty one finds none.
/// Throws Error: exit code 4, naming the first tensors, when one is missing or of another shape, or has a row
/// for each word of another vocabulary than the dataset's; 2 when `skip` is no regular expression.
Unmatched load_weights(const checkpoint::Weights& weights, const Destination& destination,
                       const std::string& skip, const std::string& subject);

/// Gives the optimizer's tensors in `state` what a checkpoint has of them, each rank its slices. Where copies
/// of the model hold values of their own and the checkpoint has as many copies, each gets its own; else all
/// get the mean of those it has, or their shares of the sum (StateTensor::Owner::Copy::adds_up). Throws Error
/// (exit code 4) naming the tensor that is missing or of another type or size. Returns what starts anew, in
/// sentences, because the checkpoint lacks it (StateTensor::anew).
std::set<std::string> load_optimizer(const checkpoint::CheckpointReader& checkpoint,
                                     const parallel::StateView& state);

/// Where the optimizer's state begins anew: only what outlives that (StateTensor::outlives_reset), of which
/// the checkpoint may lack all. Throws as load_optimizer(), also where the checkpoint has it in another form.
/// Returns whether there was any.
bool load_what_outlives_reset(const checkpoint::CheckpointReader& checkpoint,
                              const parallel::StateView& state);

}  // namespace dtrain::state
