#include "comm/transfer.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "comm/mpi_check.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;
constexpr double kSettleS = 1.0;
}  // namespace

Transfer Transfer::send(const Channel& channel, const void* data, std::size_t bytes, int to) {
  Transfer transfer;
  transfer.comm_ = channel.comm;
  transfer.tag_ = channel.tag;
  transfer.peer_ = to;
  transfer.sends_ = true;
  transfer.data_ = static_cast<std::byte*>(const_cast<void*>(data));
  transfer.bytes_left_ = bytes;
  transfer.start_piece();
  return transfer;
}

Transfer Transfer::receive(const Channel& channel, void* data, std::size_t bytes, int from) {
  Transfer transfer;
  transfer.comm_ = channel.comm;
  transfer.tag_ = channel.tag;
  transfer.peer_ = from;
  transfer.data_ = static_cast<std::byte*>(data);
  transfer.bytes_left_ = bytes;
  transfer.start_piece();
  return transfer;
}

void Transfer::start_piece() {
  piece_bytes_ = std::min(bytes_left_, kPieceBytes);
  bytes_left_ -= piece_bytes_;
  const int count = static_cast<int>(piece_bytes_);
  if (sends_) {
    check_mpi(MPI_Isend(data_, count, MPI_BYTE, peer_, tag_, comm_, &request_), "MPI_Isend");
  } else {
    check_mpi(MPI_Irecv(data_, count, MPI_BYTE, peer_, tag_, comm_, &request_), "MPI_Irecv");
  }
}

bool Transfer::test() {
  while (request_ != MPI_REQUEST_NULL) {
    int complete = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&request_, &complete, &status),
              sends_ ? "MPI_Test of a send" : "MPI_Test of a receive");
    if (complete == 0) return false;
    finish_piece(status);
    if (bytes_left_ > 0) start_piece();
  }
  return true;
}

void Transfer::finish_piece(const MPI_Status& status) {
  data_ += piece_bytes_;
  if (sends_) return;
  int received = 0;
  MPI_Get_count(&status, MPI_BYTE, &received);
  if (static_cast<std::size_t>(received) == piece_bytes_) return;
  throw Error(
      fmt::format("expected {} bytes from group rank {} but got {}", piece_bytes_, peer_, received),
      {.subject = "message", .advice = "make the same calls with the same counts on all ranks of the group"});
}

Transfer::~Transfer() {
  if (request_ == MPI_REQUEST_NULL) return;
  if (sends_) {
    MPI_Request_free(&request_);  // nobody writes
  } else {
    MPI_Cancel(&request_);
    abandon(request_);
  }
}

void abandon(MPI_Request& request) noexcept {
  const double end_s = steady_s() + kSettleS;
  int complete = 0;
  while (complete == 0 && request != MPI_REQUEST_NULL && steady_s() < end_s) {
    if (MPI_Test(&request, &complete, MPI_STATUS_IGNORE) != MPI_SUCCESS) break;
    if (complete == 0) ::sched_yield();
  }
  if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
}

void Transfer::swap(Transfer& other) noexcept {
  std::swap(request_, other.request_);
  std::swap(comm_, other.comm_);
  std::swap(tag_, other.tag_);
  std::swap(peer_, other.peer_);
  std::swap(sends_, other.sends_);
  std::swap(data_, other.data_);
  std::swap(piece_bytes_, other.piece_bytes_);
  std::swap(bytes_left_, other.bytes_left_);
}

}  // namespace dtrain::comm
