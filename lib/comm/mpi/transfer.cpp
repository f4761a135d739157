#include "comm/mpi/transfer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/emulation/link_delays.hpp"
#include "comm/mpi/mpi_check.hpp"
#include "comm/mpi/ulfm.hpp"
#include "comm/traffic.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::comm {

Transfer Transfer::send(const Channel& channel, const void* data, std::size_t bytes, int to, Owner owner) {
  return {channel, Direction::send, static_cast<std::byte*>(const_cast<void*>(data)), bytes,
          to,      std::move(owner)};
}

Transfer Transfer::receive(const Channel& channel, void* data, std::size_t bytes, int from, Owner owner) {
  return {channel, Direction::receive, static_cast<std::byte*>(data), bytes, from, std::move(owner)};
}

// All pieces at once: another message of the same ranks must not come between them.
Transfer::Transfer(const Channel& channel, Direction direction, std::byte* data, std::size_t bytes, int peer,
                   Owner owner)
    : channel_(channel),
      direction_(direction),
      peer_(peer),
      data_(data),
      bytes_(bytes),
      owner_(std::move(owner)) {
  if (!owner_ && bytes > 0) {
    const auto copy = std::make_shared_for_overwrite<std::byte[]>(bytes);
    if (direction == Direction::send) {
      std::memcpy(copy.get(), data, bytes);
    } else {
      target_ = data;
    }
    data_ = copy.get();
    owner_ = Owner(copy, copy.get());
  }
  more_.resize(bytes == 0 ? 0 : (bytes - 1) / channel.piece_bytes, MPI_REQUEST_NULL);
  try {
    begin_piece(0, first_);
    for (std::size_t i = 0; i < more_.size(); ++i) begin_piece((i + 1) * channel.piece_bytes, more_[i]);
  } catch (...) {
    const Transfer begun(std::move(*this));  // gives up what was begun
    throw;
  }
}

std::size_t Transfer::piece_at(std::size_t offset) const {
  return std::min(bytes_ - offset, channel_.piece_bytes);
}

void Transfer::begin_piece(std::size_t offset, MPI_Request& request) {
  const int count = static_cast<int>(piece_at(offset));
  std::byte* const data = data_ + offset;
  if (direction_ == Direction::send) {
    check_mpi(MPI_Isend(data, count, MPI_BYTE, peer_, channel_.tag, channel_.comm, &request), "MPI_Isend",
              channel_.comm);
  } else {
    check_mpi(MPI_Irecv(data, count, MPI_BYTE, peer_, channel_.tag, channel_.comm, &request), "MPI_Irecv",
              channel_.comm);
  }
}

bool Transfer::test() {
  while (current() != MPI_REQUEST_NULL) {
    int complete = 0;
    MPI_Status status;
    if (direction_ == Direction::send) {
      check_mpi(ulfm::test_send(&current(), &complete, channel_.comm, peer_), "a send", channel_.comm);
    } else {
      check_mpi(MPI_Test(&current(), &complete, &status), "MPI_Test of a receive", channel_.comm);
    }
    if (complete == 0) return false;
    if (direction_ == Direction::receive) check_count(status);
    const std::size_t piece = piece_at(done_);
    if (direction_ == Direction::receive && channel_.delays != nullptr) {
      const int from = channel_.world_ranks->at(static_cast<std::size_t>(peer_));
      due_ns_ = channel_.delays->due_ns(from, piece, steady_ns());
    }
    if (done_ + piece == bytes_) {
      count_bytes();
      break;
    }
    done_ += piece;
  }
  if (due_ns_ > 0 && steady_ns() < due_ns_) return false;
  if (target_ != nullptr) std::memcpy(std::exchange(target_, nullptr), data_, bytes_);
  return true;
}

void Transfer::count_bytes() const {
  if (channel_.traffic == nullptr || bytes_ == 0) return;
  const auto bytes = static_cast<std::int64_t>(bytes_);
  const bool sends = direction_ == Direction::send;
  channel_.traffic->with(channel_.world_ranks->at(static_cast<std::size_t>(peer_)))
      .add(sends ? bytes : 0, sends ? 0 : bytes);
}

void Transfer::check_count(const MPI_Status& status) const {
  int received = 0;
  MPI_Get_count(&status, MPI_BYTE, &received);
  const std::size_t expected = piece_at(done_);
  if (static_cast<std::size_t>(received) == expected) return;
  throw Error(
      fmt::format("expected {} bytes from group rank {} but got {}", expected, peer_, received),
      {.subject = "message", .advice = "make the same calls with the same counts on all ranks of the group"});
}

Transfer::~Transfer() {
  const auto give_up = [this](MPI_Request& request) {
    if (direction_ == Direction::send) {
      abandon_send(request, {channel_.comm, peer_}, data_, bytes_, owner_);
    } else if (request != MPI_REQUEST_NULL) {
      MPI_Cancel(&request);
      abandon(request, data_, bytes_, owner_);
    }
  };
  give_up(first_);
  for (MPI_Request& request : more_) give_up(request);
}

void Transfer::swap(Transfer& other) noexcept {
  std::swap(channel_, other.channel_);
  std::swap(direction_, other.direction_);
  std::swap(peer_, other.peer_);
  std::swap(data_, other.data_);
  std::swap(target_, other.target_);
  std::swap(bytes_, other.bytes_);
  std::swap(done_, other.done_);
  std::swap(due_ns_, other.due_ns_);
  std::swap(owner_, other.owner_);
  std::swap(first_, other.first_);
  std::swap(more_, other.more_);
}

}  // namespace dtrain::comm
