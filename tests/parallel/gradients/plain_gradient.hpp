#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/gradient_sums.hpp"
#include "parallel/job_of_test.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {

inline double largest_gap(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a - b).abs().max().item<double>();
}

/// The summed gradient of small_batch(samples) in small_model(), by plain autograd, laid out flat.
inline at::Tensor plain_gradient(std::int64_t samples) {
  auto model = small_model();
  FlatParameters parameters(*model, at::kDouble);
  const auto batch = small_batch(samples);
  forward_and_back(*model, whole_walk(*model), batch.inputs, batch.targets);
  auto flat = at::zeros_like(parameters.values());
  for (const auto& entry : parameters.entries()) {
    FlatParameters::view(flat, entry).copy_(entry.parameter->value.grad());
  }
  return flat;
}

/// This rank's parts hold the sums, and those of all ranks are everything, once.
inline void expect_shards_of(const at::Tensor& expected, const GradientSums& sums, comm::Group& group) {
  std::vector<double> covered(static_cast<std::size_t>(expected.numel()), 0.0);
  std::int64_t place = 0;
  for (const Range& part : sums.update_parts()) {
    const auto found = sums.gradients().narrow(0, place, part.size());
    EXPECT_LT(largest_gap(found, expected.narrow(0, part.begin, part.size())), 1e-12);
    place += part.size();
    for (auto i = part.begin; i < part.end; ++i) covered[static_cast<std::size_t>(i)] += 1.0;
  }
  EXPECT_EQ(place, sums.gradients().numel());
  group.all_reduce(comm::Buffer::of(std::span<double>(covered)), comm::ReduceOp::sum).wait();
  EXPECT_EQ(covered, std::vector<double>(covered.size(), 1.0));
}

}  // namespace dtrain::parallel
