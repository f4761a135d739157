#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/slice.hpp"
#include "models/model.hpp"
#include "optim/optimizer.hpp"
#include "parallel/gradients/flat_parameters.hpp"

namespace dtrain::parallel {

/// A tensor of the agreed state, named as in checkpoints, as this rank holds it.
struct StateTensor {
  static constexpr const char* kModel = "model";           ///< The group of parameters and buffers.
  static constexpr const char* kOptimizer = "optimizer/";  ///< What the other groups begin with.

  std::string group;  ///< `model`, or `optimizer/STATE`
  std::string name;
  /// A view: writing to it changes the state. Where there is `decoded`, it has shape and strides alone.
  at::Tensor value;
  std::shared_ptr<const models::HeldSlice> slice;  ///< Which part of the whole it is; null: the whole.
  /// The ranks that vouch for the value: one of them saves it. All ranks name the same owner, but for the
  /// copy's index.
  struct Owner {
    /// Which of how many copies of the model has this value.
    struct Copy {
      int index = 0;
      int count = 1;
      /// On another number of copies each takes its share of the sum of all values; else the mean of them.
      bool adds_up = false;
    };
    std::optional<Copy> copy = {};  ///< Empty: all copies hold the same.
    /// Position on the pipe axis of the stage that saves it for all stages, which read it. Empty: each stage
    /// saves its own.
    std::optional<int> pipe = {};
  };
  Owner owner = {};
  /// Where the copies of the model share the tensor out: what of it `value` is, which this rank alone has and
  /// saves. A tensor of which a rank has several rectangles comes as often. Empty: `value` is all of it that
  /// a rank of this stage holds.
  std::optional<Slice> shard = {};
  /// Of a shard: this rank saves it, and not another one of its tensor group that has the same.
  bool saves_shard = true;
  /// What happens where a checkpoint lacks it, as a sentence for the user: it stays as it is. Empty: it may
  /// not be missing.
  std::string anew = {};
  /// Taken from a checkpoint that has it even where the optimizer's state begins anew: what a private run has
  /// released stays released.
  bool outlives_reset = false;

  /// Makes the values, where the state is in codes. Empty: they are there.
  std::function<at::Tensor()> decoded = {};

  at::Tensor read() const { return decoded ? decoded() : value; }
  bool is_of_optimizer() const { return group.starts_with(kOptimizer); }
};

/// The model that the copies of a strategy agree on, and the state of its optimizer: what saving, resuming,
/// recovery and evaluation see. Borrowed from the strategy, and valid until its next step.
class StateView {
 public:
  /// Which shards this rank saves.
  struct Saves {
    bool common = true;  ///< Those of what its tensor group has in common, too.
    bool shards = true;  ///< Any: no rank of another node, which has the same ones, does.
  };

  /// `model`: its parameters are views of `parameters`; it has the buffers as well. `held`: what of the
  /// parameters the optimizer has state for, ascending, where other copies of the model have the rest; not
  /// given: everything. Where `parameters` hold values of these parts alone, the model's tensors are shards
  /// as well. `more`: what else there is, already named.
  StateView(FlatParameters& parameters, models::Model& model, optim::Optimizer& optimizer,
            std::optional<std::vector<Range>> held, std::vector<StateTensor> more, Saves saves);
  StateView(FlatParameters& parameters, models::Model& model, optim::Optimizer& optimizer,
            std::optional<std::vector<Range>> held = {}, std::vector<StateTensor> more = {})
      : StateView(parameters, model, optimizer, std::move(held), std::move(more), Saves()) {}

  /// Values laid out like the flat parameters.
  struct Flat {
    std::string state;  ///< STATE of `optimizer/STATE`
    at::Tensor values;
    StateTensor::Owner owner = {};
  };
  StateView(FlatParameters& parameters, models::Model& model, std::vector<Flat> optimizer,
            std::vector<StateTensor> more = {})
      : parameters_(parameters), model_(model), optimizer_(std::move(optimizer)), more_(std::move(more)) {}

  /// All tensors of this rank, in one order on all ranks of a stage.
  std::vector<StateTensor> tensors() const { return tensors(Use::read); }
  /// The same, to be written to: all have memory. What is written to the optimizer's counts when it is
  /// adopted.
  std::vector<StateTensor> places() const { return tensors(Use::write); }

  /// All parameters that are trained, flat.
  at::Tensor& flat_parameters() const { return parameters_.values(); }

 private:
  enum class Use { read, write };
  std::vector<StateTensor> tensors(Use use) const;
  std::int64_t held_count() const;
  void add_shards(const std::string& group, const Flat& flat, const FlatParameters::Entry& entry,
                  std::vector<StateTensor>& all) const;
  bool holds_shards() const { return parameters_.values().numel() != parameters_.size(); }

  FlatParameters& parameters_;
  models::Model& model_;
  const optim::Optimizer* rule_ = nullptr;  // null: optimizer_ has its state
  std::vector<Flat> optimizer_;
  std::optional<std::vector<Range>> held_;  // of which the state has values, one range behind the other
  std::vector<StateTensor> more_;
  Saves saves_;
};

}  // namespace dtrain::parallel
