#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "data/shards/dataset.hpp"

namespace dtrain::state {

/// What a checkpoint of a model trained on this dataset keeps.
checkpoint::Transformations transformations_of(const data::DatasetInfo& info);

/// Which samples a run on this dataset uses.
checkpoint::DatasetIdentity identity_of(const data::DatasetInfo& info);

/// A dataset with samples such as those of the training of a checkpoint that keeps these two, as far as they
/// tell; without any sample.
data::DatasetInfo samples_of_training(const checkpoint::DatasetIdentity& identity,
                                      const checkpoint::Transformations& transformations);

/// Throws Error (exit code 4), with `checkpoint` as subject, where the classes that a model was trained on
/// have other names, or another order, than this dataset's. Checkpoints from before they kept them fit any.
void check_same_classes(const checkpoint::DatasetIdentity& trained, const data::DatasetInfo& info,
                        const std::string& checkpoint);

/// The same for a regression's targets, where there are several.
void check_same_targets(const checkpoint::DatasetIdentity& trained, const data::DatasetInfo& info,
                        const std::string& checkpoint);

/// How a dataset's inputs, and the targets of a regression, become what a model takes.
struct InputTransformation {
  std::vector<double> mean = {};  ///< Per channel of images; empty: they are not standardised.
  std::vector<double> std_dev = {};
  enum class Floats { standardised, as_stored };
  Floats floats = Floats::standardised;  ///< Of images; bytes always are.

  /// Of a table's rows [inputs]: x * factor + offset, but `value` in place of a gap. Empty: as they are.
  std::vector<double> factor = {};
  std::vector<double> offset = {};
  struct Gap {
    std::size_t input;   ///< In which the gaps are,
    std::size_t marker;  ///< and the input that is 1 where one is.
    double value;
  };
  std::vector<Gap> gaps = {};

  /// Of each target, which becomes (y - shift) / scale; empty: they are taken as they are.
  std::vector<checkpoint::TargetScale> targets = {};
};

/// The dataset's own.
InputTransformation own_transformation(const data::DatasetInfo& info);

/// The one with which this dataset's inputs mean what they meant to a model of the checkpoint; `trained`:
/// what the checkpoint keeps, nothing where it is from before it kept it: the dataset's own, without floats
/// of images. Throws Error (exit code 4), with `checkpoint` as subject, where the columns are others.
InputTransformation transformation_as_trained(const std::optional<checkpoint::Transformations>& trained,
                                              const data::DatasetInfo& info, const std::string& checkpoint);

}  // namespace dtrain::state
