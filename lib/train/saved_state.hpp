#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/writer.hpp"
#include "h5/library.hpp"
#include "models/model.hpp"
#include "optim/optimizer.hpp"
#include "parallel/flat_parameters.hpp"
#include "train/job.hpp"

namespace dtrain::train {

/// A copy of everything a checkpoint holds, taken between two steps: the run may go on while it is kept or
/// written.
class SavedState {
 public:
  /// What is copied: ranks that share the parameters with another rank that copies them need but their own.
  enum class Contents { everything, buffers };
  SavedState(const parallel::FlatParameters& parameters, models::Model& model,
             const optim::Optimizer& optimizer, checkpoint::CheckpointInfo info, Contents contents);

  const checkpoint::CheckpointInfo& info() const { return info_; }

  /// Writes it below `checkpoints`: one rank of each stage the part of that stage, with slices put together.
  /// Collective over the job. Throws Error (exit code 4) on all ranks.
  void write(const std::filesystem::path& checkpoints, Job& job, h5::Library& library) const;

  /// Gives the model what this copy has of parameters and buffers.
  void restore_model(models::Model& model) const;

 private:
  struct Named {
    std::string group;  // model, optimizer/STATE
    std::string name;
    at::Tensor value;                                // contiguous
    std::shared_ptr<const models::HeldSlice> slice;  // null: the whole
  };
  static std::vector<checkpoint::TensorRef> references(const std::vector<Named>& tensors);
  std::vector<Named> put_together(comm::Group& tensor_ranks) const;

  checkpoint::CheckpointInfo info_;
  std::vector<Named> tensors_;  // buffers, parameters, optimizer state
};

/// `float32`, ... as checkpoints name it.
std::string dtype_name(at::ScalarType type);

}  // namespace dtrain::train
