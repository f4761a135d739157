#pragma once

#include <mpi.h>

#include "comm/mpi/communicator.hpp"

namespace dtrain::comm {

/// Between the CPUs of two ranks: that one of them has given its GPU a message for the other. Carries
/// nothing. Those of a pair arrive in the order in which they were begun.
class Notice {
 public:
  Notice() = default;  ///< Complete.
  /// `pair` must outlive it. Throw Error.
  static Notice to(const Communicator& pair, int peer);
  static Notice from(const Communicator& pair, int peer);
  ~Notice();  ///< One that is not complete is abandoned: after a failure.
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;
  Notice(Notice&& other) noexcept { swap(other); }
  Notice& operator=(Notice&& other) noexcept {
    Notice(static_cast<Notice&&>(other)).swap(*this);
    return *this;
  }

  /// True once it is there, or can be forgotten by the one that gave it. Throws Error when the peer is gone.
  bool test();

 private:
  void swap(Notice& other) noexcept;
  MPI_Comm pair_ = MPI_COMM_NULL;
  int peer_ = 0;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool is_received_ = false;
};

}  // namespace dtrain::comm
