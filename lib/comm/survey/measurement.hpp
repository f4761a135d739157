#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/group.hpp"
#include "comm/types.hpp"

namespace dtrain::comm {

/// What a collective of a group took. Names, sizes and bandwidths are those of NCCL's tests (nccl-tests,
/// doc/PERFORMANCE.md): `bytes` is the larger of what a rank gives and gets, and the bus bandwidth is what
/// the links carry, comparable over numbers of ranks.
struct Measurement {
  std::string group;
  std::string operation;
  std::string algorithm;  ///< Of an all_reduce; else empty.
  int ranks = 1;
  std::size_t bytes = 0;
  double median_s = 0;  ///< Of an operation, the slowest rank's time, over the rounds.
  double least_s = 0;
  double greatest_s = 0;

  double algorithm_bytes_per_s() const { return static_cast<double>(bytes) / median_s; }
  double bus_bytes_per_s() const;
};

struct MeasurementPlan {
  std::vector<std::size_t> sizes = {std::size_t{4} << 10, std::size_t{256} << 10, std::size_t{4} << 20,
                                    std::size_t{36} << 20};  ///< Bytes.
  int rounds = 5;                                            ///< In each, all contenders take turns.
  double turn_s = 0.02;                                      ///< As many operations as fit, at least one.
  std::size_t largest_tree_bytes = std::size_t{4} << 20;     ///< Beyond, a tree only wastes time.
};

/// Every algorithm of all_reduce, MPI's among them. Collective over `group`.
std::vector<Measurement> measure_all_reduce(Group& group, const MeasurementPlan& plan,
                                            const std::vector<Algorithm>& algorithms);

/// reduce_scatter, all_gather, all_to_all, broadcast and send_receive (to the next rank). Collective.
std::vector<Measurement> measure_collectives(Group& group, const MeasurementPlan& plan);

/// all_reduce and all of these but send_receive between the memories of devices; nothing where the group does
/// not reach them. Collective.
std::vector<Measurement> measure_on_device(Group& group, const MeasurementPlan& plan);

}  // namespace dtrain::comm
