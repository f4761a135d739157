#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrain::comm {

/// A fault on demand, to see what a run does about it: which rank does what, and when.
struct InjectedFault {
  enum class Kind {
    kill,       ///< SIGKILL.
    stop,       ///< SIGSTOP: the process stays, and does nothing.
    fail,       ///< An error of its own at the step's begin, which no other rank has.
    slow,       ///< From the step on, forward and backward take `factor` times as long.
    skip,       ///< The rank leaves out the step's first sum over the data group,
    count,      ///< or passes one element less,
    dtype,      ///< or elements of another type,
    order,      ///< or meets the others in a barrier first.
    nan,        ///< The loss of the step's micro-batches is not a number.
    drift,      ///< The rank's copy of a buffer (BatchNorm's), or of a weight, changes by itself.
    disk_full,  ///< From the step on the process can write to no file (it is told "too large", not "no
                ///< space").
    link_down   ///< The node's network is down, for `seconds` or for good: needs the right to do that.
  };
  Kind kind = Kind::kill;
  int rank = 0;
  std::string phase = "forward";  ///< Of kill and stop: see phases().
  std::int64_t step = 1;
  double factor = 10;  ///< Of slow.
  double seconds = 0;  ///< Of link_down; 0: for good.

  /// Whether it is of a sum over the data group.
  bool is_of_sum() const {
    return kind == Kind::skip || kind == Kind::count || kind == Kind::dtype || kind == Kind::order;
  }

  /// forward, backward, all_reduce, optimizer, evaluation, checkpoint; test: the evaluation at the end;
  /// shutdown: behind it, before results.h5 is put together; recovery: after another rank was lost, whatever
  /// the step.
  static const std::vector<std::string>& phases();
};

/// `KIND:rank=R,phase=P,step=S,factor=F,seconds=T`, several with `;` between; what is not named has its
/// default. Throws Error (exit code 2) for a fault that cannot happen, also of a rank that is not there.
std::vector<InjectedFault> parse_faults(const std::string& text, int world_size);

}  // namespace dtrain::comm
