#pragma once

#include <string>

#include "comm/group.hpp"
#include "record/predictions_file.hpp"
#include "train/loop/evaluation.hpp"

namespace dtrain::inference {

/// What a model says of each sample of a split, gathered from the ranks that evaluate it.
class OutputRows {
 public:
  /// `option`: to blame where a model gives no rows.
  explicit OutputRows(std::string option) : option_(std::move(option)) {}

  /// Rows of this rank, batch after batch. Throws Error (exit code 2) where the outputs have not one size per
  /// sample.
  void take(const train::BatchOutputs& batch);

  /// All ranks' rows on rank 0, in the order of the samples; elsewhere this rank's. Collective.
  record::Predictions gather(comm::Group& group, std::int64_t samples);

 private:
  std::string option_;
  record::Predictions own_;
};

}  // namespace dtrain::inference
