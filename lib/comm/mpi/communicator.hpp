#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/types.hpp"

namespace dtrain::comm {

class Step;

/// Seconds that ranks wait for one another at most, unless something else is said.
constexpr double kUsualLimitS = 300;

/// A group of ranks that exchange messages only with one another. Owns exactly one MPI communicator.
/// Move-only, because a copy would hide a collective call. Must be destroyed before MPI is finalised.
/// The collectives here block: they are for set-up and agreement, gradients go through Group. All of them
/// wait for all ranks. A rank that does not come within the limit is named by an Error (exit code 5) on the
/// others.
class Communicator {
 public:
  /// A private duplicate of `parent`, so that our messages cannot match those of another library, with
  /// MPI_ERRORS_RETURN. Collective over `parent`. Throws Error. `limit_s`: see above; 0: none. What is split
  /// from it has the same.
  static Communicator duplicate(MPI_Comm parent, double limit_s = kUsualLimitS);

  Communicator(Communicator&& other) noexcept { swap(other); }
  Communicator& operator=(Communicator&& other) noexcept {
    Communicator(std::move(other)).swap(*this);  // what we held is freed here
    return *this;
  }
  ~Communicator();  ///< Frees the handle unless it was moved away or an exception unwinds.

  int rank() const noexcept { return rank_; }  ///< In [0, size()).
  int size() const noexcept { return size_; }  ///< At least 1.

  /// The ranks with equal `color`, ordered by (`key`, rank). Collective.
  Communicator split(int color, int key) const;
  /// The ranks that can share memory with this one. Collective.
  Communicator split_by_shared_memory() const;

  void barrier() const;  ///< Collective and blocking.
  /// The same, looking seldom: for waits while other ranks measure.
  void patient_barrier() const;

  /// Replaces `values` by its element-wise sum over all ranks; n equal on every rank. Collective, blocking.
  /// Last bits may vary with size(). Throws Error if MPI fails or n exceeds the range of int.
  void all_reduce_sum(std::span<float> values) const;
  void all_reduce_sum(std::span<double> values) const;
  void all_reduce_sum(std::span<std::int64_t> values) const;
  std::int64_t max(std::int64_t value) const;  ///< The greatest over all ranks. Collective.
  std::int64_t min(std::int64_t value) const;  ///< The least over all ranks. Collective.
  double max(double value) const;

  /// Everyone's value, in order of rank. Collective.
  std::vector<std::int64_t> all_gather(std::int64_t value) const;
  std::vector<std::string> all_gather(const std::string& text) const;

  /// The root's text on every rank. Collective.
  std::string broadcast(const std::string& text, int root) const;
  void broadcast_bytes(std::span<std::byte> bytes, int root) const;

  /// Any number of bytes from one rank to another, which names the same number. Blocking, with the same
  /// limit.
  void send_bytes(std::span<const std::byte> bytes, int to) const;
  void receive_bytes(std::span<std::byte> bytes, int from) const;

  /// Ends all that any rank does with any communicator of this process that was not freed: after a loss, so
  /// that no rank waits in vain. With ULFM only. They are of no more use.
  static void revoke_all() noexcept;

  /// Throws Error (exit code 5) when a rank is gone, of which MPI may learn for a second: after a failure
  /// that may have been caused by that.
  void check_losses() const;

  /// For calls that only the MPI library offers; still owned here.
  MPI_Comm handle() const noexcept { return handle_; }

  /// What a LongPhase allows, in seconds; 0: nothing more than usual. Shared with what was split from this.
  std::shared_ptr<const std::atomic<double>> allowance() const { return allowance_; }

 private:
  friend class LongPhase;
  using Allowance = std::shared_ptr<std::atomic<double>>;
  Communicator() = default;
  Communicator(MPI_Comm handle, double limit_s, Allowance allowance);  ///< Takes ownership.
  void swap(Communicator& other) noexcept;
  double limit_s() const;
  template <typename T>
  void reduce(std::span<T> values, ReduceOp op, std::string_view what) const;
  void complete(Step& step, std::string_view what) const;

  MPI_Comm handle_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  double limit_s_ = kUsualLimitS;
  Allowance allowance_;
};

/// While it lives, waits for other ranks may take `limit_s`, where that is more than usual: ranks copy, read
/// or write files, which may take some of them long. Counts for `ranks`, for what was split from it or it was
/// split from, and for the operations of groups made with it. All ranks have one at a time, and all
/// come to a barrier before it ends: the slowest may be far behind.
class LongPhase {
 public:
  LongPhase(const Communicator& ranks, double limit_s);
  ~LongPhase() { end(); }
  LongPhase(const LongPhase&) = delete;
  LongPhase& operator=(const LongPhase&) = delete;
  void end() noexcept;

 private:
  std::shared_ptr<std::atomic<double>> allowance_;  // empty once ended
  double before_s_;
};

}  // namespace dtrain::comm
