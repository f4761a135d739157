#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace dtrain::comm {

/// Where messages of one collective travel.
struct Channel {
  MPI_Comm comm = MPI_COMM_NULL;
  int tag = 0;
};

/// Gives up a request that is not complete, after a failure: MPI must not write to its memory any more, which
/// is about to be freed. Waits for that, at most a second: a receive that has begun cannot be cancelled, but
/// ends, with an error if its sender is gone.
void abandon(MPI_Request& request) noexcept;

/// One message on its way, sent or received. Move-only; abandoning one that is not complete happens only
/// after a failure.
class Transfer {
 public:
  Transfer() = default;  ///< Complete.
  static Transfer send(const Channel& channel, const void* data, std::size_t bytes, int to);
  static Transfer receive(const Channel& channel, void* data, std::size_t bytes, int from);

  Transfer(Transfer&& other) noexcept { swap(other); }
  Transfer& operator=(Transfer&& other) noexcept {
    Transfer(std::move(other)).swap(*this);
    return *this;
  }
  ~Transfer();

  /// True once complete. Throws Error when the peer is gone, or sent another number of bytes.
  bool test();

 private:
  void swap(Transfer& other) noexcept;
  void finish_piece(const MPI_Status& status);

  MPI_Request request_ = MPI_REQUEST_NULL;  ///< Of the piece on its way; MPI counts in int.
  MPI_Comm comm_ = MPI_COMM_NULL;
  int tag_ = 0;
  int peer_ = 0;
  bool sends_ = false;
  std::byte* data_ = nullptr;  ///< Of that piece.
  std::size_t piece_bytes_ = 0;
  std::size_t bytes_left_ = 0;  ///< After that piece.
  void start_piece();
};

}  // namespace dtrain::comm
