#include "comm/device/nccl/notice.hpp"

#include <utility>

#include "comm/mpi/mpi_check.hpp"
#include "comm/mpi/ulfm.hpp"
#include "comm/mpi/unsettled.hpp"

namespace dtrain::comm {
namespace {

constexpr int kTag = 1;

}  // namespace

Notice Notice::to(const Communicator& pair, int peer) {
  Notice made;
  made.pair_ = pair.handle();
  made.peer_ = peer;
  check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, peer, kTag, made.pair_, &made.request_), "MPI_Isend", made.pair_);
  return made;
}

Notice Notice::from(const Communicator& pair, int peer) {
  Notice made;
  made.pair_ = pair.handle();
  made.peer_ = peer;
  made.is_received_ = true;
  check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, kTag, made.pair_, &made.request_), "MPI_Irecv", made.pair_);
  return made;
}

Notice::~Notice() {
  if (!is_received_) {
    abandon_send(request_, {pair_, peer_}, nullptr, 0, {});
  } else if (request_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&request_);
    abandon(request_, nullptr, 0, {});
  }
}

bool Notice::test() {
  int complete = 0;
  check_mpi(is_received_ ? MPI_Test(&request_, &complete, MPI_STATUS_IGNORE)
                         : ulfm::test_send(&request_, &complete, pair_, peer_),
            "MPI_Test of a notice", pair_);
  return complete != 0;
}

void Notice::swap(Notice& other) noexcept {
  std::swap(pair_, other.pair_);
  std::swap(peer_, other.peer_);
  std::swap(request_, other.request_);
  std::swap(is_received_, other.is_received_);
}

}  // namespace dtrain::comm
