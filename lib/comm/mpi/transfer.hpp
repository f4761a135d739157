#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/mpi/unsettled.hpp"

namespace dtrain::comm {

/// Bytes of one of MPI's messages, which it counts in int: longer ones go in pieces.
constexpr std::size_t kLongestPiece = std::size_t{1} << 30;

class LinkDelays;
class Traffic;

/// Where messages of one collective travel.
struct Channel {
  MPI_Comm comm = MPI_COMM_NULL;
  int tag = 0;
  std::size_t piece_bytes = kLongestPiece;
  LinkDelays* delays = nullptr;                   ///< Of an emulated machine; null: there are none. Borrowed.
  Traffic* traffic = nullptr;                     ///< Counts bytes by peer; null: none does. Borrowed.
  const std::vector<int>* world_ranks = nullptr;  ///< Of the peers, for these two, by their ranks in `comm`.
};

/// One message on its way, sent or received. Move-only; abandoning one that is not complete happens only
/// after a failure. Messages of one channel between the same ranks are matched in the order in which they
/// were begun, whatever their length.
class Transfer {
 public:
  Transfer() = default;  ///< Complete.
  /// `owner` keeps the memory for as long as MPI may use it, which after a failure may be for ever. Without
  /// one MPI is given a copy, and what is received is copied to `data` when it is complete.
  static Transfer send(const Channel& channel, const void* data, std::size_t bytes, int to, Owner owner = {});
  static Transfer receive(const Channel& channel, void* data, std::size_t bytes, int from, Owner owner = {});

  Transfer(Transfer&& other) noexcept { swap(other); }
  Transfer& operator=(Transfer&& other) noexcept {
    Transfer(std::move(other)).swap(*this);
    return *this;
  }
  ~Transfer();

  /// True once complete. Throws Error when the peer is gone, or sent another number of bytes.
  bool test();

 private:
  enum class Direction { send, receive };
  Transfer(const Channel& channel, Direction direction, std::byte* data, std::size_t bytes, int peer,
           Owner owner);
  void swap(Transfer& other) noexcept;
  void begin_piece(std::size_t offset, MPI_Request& request);
  void check_count(const MPI_Status& status) const;
  void count_bytes() const;
  std::size_t piece_at(std::size_t offset) const;
  MPI_Request& current() { return done_ == 0 ? first_ : more_[done_ / channel_.piece_bytes - 1]; }

  Channel channel_;
  Direction direction_ = Direction::send;
  int peer_ = 0;
  std::byte* data_ = nullptr;    ///< What MPI uses.
  std::byte* target_ = nullptr;  ///< Where the copy goes that MPI has received; null where there is none.
  std::size_t bytes_ = 0;
  std::size_t done_ = 0;                  ///< Bytes of the pieces that are complete.
  std::int64_t due_ns_ = 0;               ///< When an emulated link lets what has come be seen.
  Owner owner_;                           ///< Of data_.
  MPI_Request first_ = MPI_REQUEST_NULL;  ///< The usual case, without a vector to allocate.
  std::vector<MPI_Request> more_;         ///< Of the pieces behind the first.
};

}  // namespace dtrain::comm
