#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::comm {

/// A group of ranks that exchange messages only with one another. Owns exactly one MPI communicator.
/// Move-only, because a copy would hide a collective call. Must be destroyed before MPI is finalised.
/// The collectives here block: they are for set-up and agreement, gradients go through Group.
class Communicator {
 public:
  /// A private duplicate of `parent`, so that our messages cannot match those of another library, with
  /// MPI_ERRORS_RETURN. Collective over `parent`. Throws Error.
  static Communicator duplicate(MPI_Comm parent);

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
  /// The same, leaving the core to others meanwhile: for waits while other ranks measure.
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

  /// Any number of bytes from one rank to another, which names the same number. Blocking.
  void send_bytes(std::span<const std::byte> bytes, int to) const;
  void receive_bytes(std::span<std::byte> bytes, int from) const;

  /// Ends all that any rank does with any communicator of this process that was not freed: after a loss, so
  /// that nobody waits in vain. With ULFM only. They are of no more use.
  static void revoke_all() noexcept;

  /// For calls that only the MPI library offers; still owned here.
  MPI_Comm handle() const noexcept { return handle_; }

 private:
  Communicator() = default;
  explicit Communicator(MPI_Comm handle);  ///< Takes ownership.
  void swap(Communicator& other) noexcept;
  MPI_Comm handle_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace dtrain::comm
