#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

#include "data/loader.hpp"
#include "data/shards/dataset.hpp"
#include "kernels/augment.hpp"
#include "models/model.hpp"
#include "parallel/device/device_copies.hpp"
#include "state/transformations.hpp"

namespace dtrain::train {

/// Random crops and flips of training images, a pure function of (seed, epoch, sample id).
struct Augmentation {
  std::uint64_t seed = 1;
  std::int64_t steps_per_epoch = 1;  ///< A training batch's epoch follows from its step.
  int padding = 4;                   ///< Zeros on every side before the crop; 0: no crop.
  kernels::Flips flips = kernels::Flips::at_random;
};

/// From a batch as it is stored to the tensors a model takes: bytes of images become (b / 255 - mean) / std,
/// floats of images (x - mean) / std, numbers the run's precision, on its device; ids stay int32, on the CPU.
/// Bytes travel to a device as they are, where it has a kernel to make images of them: the same values.
class Preparation {
 public:
  /// With the goal own_input images become b / 255 only, and floats stay as they are. `how`: mostly the
  /// dataset's state::own_transformation(). `augmentation`: of training batches, whose inputs must be images.
  /// `clock`, borrowed: receives how long copies to the device take.
  Preparation(const data::DatasetInfo& info, const state::InputTransformation& how, at::ScalarType dtype,
              models::Goal goal = models::Goal::target,
              const std::optional<Augmentation>& augmentation = std::nullopt, at::Device device = at::kCPU,
              parallel::DeviceClock* clock = nullptr);

  /// [n, ...] of the run's dtype; of text the ids [n, T], of pairs source [n, S] and target [n, T]. What lies
  /// in the batch's arrays keeps them: the loader does not fill them again before.
  models::Tensors inputs(const data::Batch& batch) const;
  /// The same for a training batch, augmented where augmentation is on; its step counts from 0 over all
  /// epochs.
  models::Tensors training_inputs(const data::Batch& batch) const;
  /// On the CPU: int64 [n] ([n, T] words of pairs and blocks), or the run's dtype for regression. Keeps
  /// the batch's array as inputs() does. Of a regression (y - shift) / scale.
  at::Tensor targets(const data::Batch& batch) const;

  /// How many units of a regression's target `target` a model's 1 is.
  double target_scale(std::size_t target) const;
  /// Values [..., targets] as a model gives them, or takes as targets, in the units of the dataset, in place.
  void give_units(std::span<float> values) const;
  void give_units(std::span<double> values) const;

 private:
  using Crops = std::vector<kernels::CropAndFlip>;
  Crops crops_of(const data::Batch& batch) const;
  models::Tensors prepared(const at::Tensor& stored) const;
  models::Tensors with_targets(models::Tensors inputs, const data::Batch& batch) const;
  models::Tensors prepared_images(const at::Tensor& stored) const;
  at::Tensor prepared_rows(const at::Tensor& stored) const;
  at::Tensor prepared_on_device(const at::Tensor& stored, Crops crops) const;
  bool has_kernel_for(const at::Tensor& stored) const;

  at::ScalarType dtype_;
  at::Device device_;
  parallel::DeviceCopies copies_;
  bool standardises_floats_;
  bool pairs_;          // a translator reads its target words too
  bool takes_targets_;  // as does a model that computes its loss itself
  std::optional<Augmentation> augmentation_;
  std::vector<float> mean_;
  std::vector<float> deviation_;
  at::Tensor factor_;  // of a table's rows, as is `offset_`: [inputs]; undefined: 1 and 0
  at::Tensor offset_;
  std::vector<state::InputTransformation::Gap> gaps_;
  std::vector<checkpoint::TargetScale> target_scales_;  // empty: targets are taken as they are
  at::Tensor target_shift_;                             // the same as float64 [targets]
  at::Tensor target_scale_;
};

/// What the model's outputs are compared with: the batch's targets or, where that is its goal, `inputs`.
at::Tensor targets_of(const models::Model& model, const Preparation& preparation, const data::Batch& batch,
                      const models::Tensors& inputs);

}  // namespace dtrain::train
