#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/group.hpp"
#include "core/error.hpp"

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

/// A 64-bit hash of a contiguous tensor's bytes.
std::uint64_t hash_of(const at::Tensor& values);

}  // namespace dtrain::parallel
