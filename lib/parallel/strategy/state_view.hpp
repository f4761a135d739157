#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  at::Tensor value;                                ///< A view: writing to it changes the state.
  std::shared_ptr<const models::HeldSlice> slice;  ///< Which part of the whole it is; null: the whole.
  /// Which of how many copies of the model has this value.
  struct OfCopy {
    int index = 0;
    int count = 1;
  };
  std::optional<OfCopy> copy = {};  ///< Empty: all copies hold the same.
  bool saves = true;                ///< False: another stage saves it, and this one reads it.

  bool is_of_optimizer() const { return group.starts_with(kOptimizer); }
};

/// The model that the copies of a strategy agree on, and the state of its optimizer: what saving, resuming,
/// recovery and evaluation see. Borrowed from the strategy, and valid until its next step.
class StateView {
 public:
  /// `model`: its parameters are views of `parameters`; it has the buffers as well.
  StateView(FlatParameters& parameters, models::Model& model, optim::Optimizer& optimizer);

  /// Values laid out like the flat parameters.
  struct Flat {
    std::string state;  ///< STATE of `optimizer/STATE`
    at::Tensor values;
    std::optional<StateTensor::OfCopy> copy = {};
  };
  /// `more`: what else there is, already named.
  StateView(FlatParameters& parameters, models::Model& model, std::vector<Flat> optimizer,
            std::vector<StateTensor> more = {})
      : parameters_(parameters), model_(model), optimizer_(std::move(optimizer)), more_(std::move(more)) {}

  /// All tensors of this rank, in one order on all ranks of a stage.
  std::vector<StateTensor> tensors() const;

  /// All parameters that are trained, flat.
  at::Tensor& flat_parameters() const { return parameters_.values(); }

 private:
  FlatParameters& parameters_;
  models::Model& model_;
  std::vector<Flat> optimizer_;
  std::vector<StateTensor> more_;
};

}  // namespace dtrain::parallel
