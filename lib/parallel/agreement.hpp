#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/group.hpp"
#include "core/error.hpp"
#include "models/model.hpp"

namespace dtrain::parallel {

/// Throws Error with `problem` on every rank unless all ranks gave the same value. Collective and blocking.
void require_agreement(comm::Group& group, std::uint64_t value, const char* problem,
                       const ErrorContext& context);

/// World ranks of the group whose value is not that of most ranks (of several as frequent, of the one that
/// the lowest rank gave). The same on all ranks. Collective and blocking.
std::vector<int> ranks_apart(comm::Group& group, std::uint64_t value);

/// Gives every rank the values of the group's rank 0, then verifies by hash that all hold the same.
/// values: [n], contiguous. Collective and blocking. Throws Error when a rank differs afterwards.
void broadcast_parameters(comm::Group& group, at::Tensor& values);

/// Compares the copies of a part of the model: `values`, its flat parameters, those that are not trained, and
/// its buffers, by hash. `copies`: the ranks that hold one each; `world`: all ranks, which fail alike.
/// Collective over both, and blocking. Throws Error naming the ranks that hold something else than most, and
/// `step`, the one done last.
void require_same_copies(comm::Group& copies, comm::Group& world, models::Model& model,
                         const at::Tensor& values, std::int64_t step);

/// The same by a hash of what the ranks of `group` are to have alike.
void require_same_hash(comm::Group& group, comm::Group& world, std::uint64_t hash, std::int64_t step);

/// A 64-bit hash of a contiguous tensor's bytes.
std::uint64_t hash_of(const at::Tensor& values);

}  // namespace dtrain::parallel
