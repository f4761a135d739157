#include "parallel/agreement.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "core/counted.hpp"
#include "kernels/reduce.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::parallel {

void require_agreement(comm::Group& group, std::uint64_t value, const char* problem,
                       const ErrorContext& context) {
  // max(x) and max(~x): equal to x and ~x on every rank if and only if all gave the same x.
  std::array<std::int64_t, 2> extremes = {static_cast<std::int64_t>(value),
                                          static_cast<std::int64_t>(~value)};
  group.all_reduce(comm::Buffer::of(std::span<std::int64_t>(extremes)), comm::ReduceOp::max).wait();
  const bool largest = extremes[0] == static_cast<std::int64_t>(value);
  const bool smallest = extremes[1] == static_cast<std::int64_t>(~value);
  // Ranks that see their own value as both extremes may still differ from others: compare all.
  std::array<std::int64_t, 1> unequal = {largest && smallest ? 0 : 1};
  group.all_reduce(comm::Buffer::of(std::span<std::int64_t>(unequal)), comm::ReduceOp::max).wait();
  require(unequal[0] == 0, problem, context);
}

std::vector<int> ranks_apart(comm::Group& group, std::uint64_t value) {
  std::array<std::int64_t, 1> mine = {static_cast<std::int64_t>(value)};
  std::vector<std::int64_t> all(static_cast<std::size_t>(group.size()));
  group.all_gather(comm::Buffer::of(std::span<std::int64_t>(mine)), comm::Buffer::of(std::span(all))).wait();
  const auto usual = *std::ranges::max_element(
      all, {}, [&](std::int64_t candidate) { return std::ranges::count(all, candidate); });
  std::vector<int> apart;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (all[static_cast<std::size_t>(rank)] != usual) apart.push_back(group.world_rank_of(rank));
  }
  return apart;
}

std::uint64_t hash_of(const at::Tensor& values) {
  const at::Tensor here = values.cpu();
  return kernels::hash_bytes(here.const_data_ptr(), static_cast<std::size_t>(here.nbytes()));
}

void broadcast_parameters(comm::Group& group, at::Tensor& values) {
  if (group.size() == 1) return;
  const at::Tensor here = values.cpu();
  group.broadcast(buffer_of(here), 0).wait();
  if (!values.is_cpu()) values.copy_(here);
  require_agreement(
      group, hash_of(values), "the ranks start with different parameters",
      {.subject = "parameters", .advice = "run `dtrain topology` to check the links between the nodes"});
}

void require_same_copies(comm::Group& copies, comm::Group& world, models::Model& model,
                         const at::Tensor& values, std::int64_t step) {
  constexpr std::uint64_t kPrime = 1099511628211ULL;
  auto hash = hash_of(values);
  for (const auto* parameter : model.parameters()) {
    if (parameter->frozen) hash = hash * kPrime ^ hash_of(parameter->value.contiguous());
  }
  for (const auto* buffer : model.buffers()) hash = hash * kPrime ^ hash_of(buffer->value.contiguous());
  require_same_hash(copies, world, hash, step);
}

void require_same_hash(comm::Group& group, comm::Group& world, std::uint64_t hash, std::int64_t step) {
  const auto odd = ranks_apart(group, hash);
  std::array<std::int64_t, 1> some = {odd.empty() ? 0 : 1};  // also in other groups
  world.all_reduce(comm::Buffer::of(std::span<std::int64_t>(some)), comm::ReduceOp::max).wait();
  require(some[0] == 0,
          odd.empty() ? std::string("copies of another part of the model have drifted apart")
                      : fmt::format("{} {} other weights or statistics than the other copies",
                                    numbered("rank", odd), odd.size() == 1 ? "holds" : "hold"),
          {.subject = fmt::format("step {}", step),
           .advice = "go on from the last checkpoint, and look at that machine's memory"});
}

}  // namespace dtrain::parallel
