#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "topology/fabric.hpp"

namespace dtrain::comm {

/// What this rank's clock would show on an emulated machine. Nothing is measured: computing takes the given
/// time of a sample, times the rank's slowness, and messages take what their link says. So the same run shows
/// the same times, on any number of cores.
///
/// Collectives take what they are counted for once all of their ranks have come; computing and sums do not
/// overlap, which makes times of `ddp` an upper bound.
class VirtualClock {
 public:
  /// `fabric` is borrowed. `rank`: in MPI_COMM_WORLD at the start.
  VirtualClock(const topology::Fabric& fabric, int rank) : fabric_(fabric), rank_(rank) {}

  double now_s() const { return now_s_; }

  /// The rank computes `samples` of `step`.
  void compute(std::int64_t step, double samples) {
    const double seconds = samples * fabric_.compute_s_per_sample * fabric_.slowness(rank_, step);
    computed_s_ += seconds;
    now_s_ += seconds;
  }
  double computed_s() const { return computed_s_; }  ///< All that compute() took.

  /// A message that `from` has sent at `sent_s` is here.
  void receive(int from, double sent_s, double bytes);
  /// The rank waits until then, if it is not later.
  void wait_until(double time_s) { now_s_ = now_s_ > time_s ? now_s_ : time_s; }

  /// A collective that takes `seconds` will be over at the next settle().
  void count_collective(double seconds);
  /// Collectives counted from here to end_aside() go on beside what the rank does then, after those that went
  /// aside before. They delay no other collective.
  void begin_aside() { is_aside_ = true; }
  /// Whether any was counted; then await_aside() is to follow, in the order of these calls.
  bool end_aside();
  /// The rank waits for the collectives of the oldest end_aside() that has not been waited for.
  void await_aside();

  bool owes() const { return counts_ || std::ranges::any_of(aside_, &Aside::is_new); }
  /// The counted collectives have begun when the last rank came, at `latest_s`.
  void settle(double latest_s);
  /// What was counted since belongs to no step: evaluation, for example.
  void forget();

  const topology::Fabric& fabric() const { return fabric_; }

 private:
  const topology::Fabric& fabric_;
  int rank_;
  double now_s_ = 0;
  double computed_s_ = 0;
  double counted_s_ = 0;
  bool counts_ = false;

  struct Aside {
    double seconds = 0;
    double end_s = 0;  // known once it is settled
    bool is_new = true;
  };
  bool is_aside_ = false;
  double aside_s_ = 0;        // since begin_aside()
  double aside_until_s_ = 0;  // all that is settled
  std::deque<Aside> aside_;   // the oldest first
};

/// Times of collectives of `bytes` among ranks on `nodes` nodes whose slowest link is `link`; within a node
/// they cost nothing. A ring passes 2 (n - 1) messages of an n-th one after another, a tree ceil(log2 n) of
/// everything, and twice that for a sum, of which the faster is taken. Source: Thakur, Rabenseifner and Gropp
/// 2005.
double all_reduce_seconds(const topology::Fabric::Link& link, int nodes, double bytes);
double broadcast_seconds(const topology::Fabric::Link& link, int nodes, double bytes);
/// Half of a ring: reduce_scatter, all_gather, all_to_all; `bytes` of the whole.
double half_ring_seconds(const topology::Fabric::Link& link, int nodes, double bytes);

}  // namespace dtrain::comm
