#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "comm/collectives/message_steps.hpp"
#include "comm/collectives/reduce.hpp"
#include "comm/collectives/slicing.hpp"

namespace dtrain::comm {
namespace {

// A piece fits what Open MPI sends over TCP without asking first (btl_tcp_eager_limit, 64 KiB with its
// header): where both directions of a link are full, the question waits behind the data, and 36 MiB between
// two nodes over 1 Gb/s took 0.37 to 0.41 s in pieces of 256 KiB, 0.34 s in these.
constexpr std::size_t kPieceBytes = std::size_t{60} << 10;
constexpr std::size_t kMessagesUnderWay = 32;  // per direction

/// The buffer is cut into n chunks, each chunk into pieces. Move m = (step, piece) sends one piece to the
/// next rank and receives another from the one before; steps 0..n-2 reduce, steps n-1..2n-3 hand the sums
/// round.
class RingAllReduce final : public Step {
 public:
  RingAllReduce(Party party, Buffer values, ReduceOp op)
      : party_(std::move(party)), values_(std::move(values)), op_(op), n_(party_.size()) {
    const std::size_t chunk_bytes = size_of_range(chunk(0)) * element_bytes();
    pieces_ = std::max<std::size_t>(1, (chunk_bytes + kPieceBytes - 1) / kPieceBytes);
    moves_ = static_cast<std::size_t>(2 * (n_ - 1)) * pieces_;
    arriving_->resize(kMessagesUnderWay * size_of_range(largest_piece()) * element_bytes());
  }

  bool advance() override {
    bool moved = true;
    while (moved) {
      moved = post_receives();
      moved |= post_sends();
      moved |= take_arrivals();
      moved |= finish_sends();
    }
    return arrived_ == moves_ && sent_ == moves_;
  }

 private:
  std::size_t element_bytes() const { return size_of(values_.type); }
  int step_of(std::size_t move) const { return static_cast<int>(move / pieces_); }
  bool reduces(std::size_t move) const { return step_of(move) < n_ - 1; }

  Range chunk(int index) const {
    return aligned_part(values_.count, element_bytes(), (index % n_ + n_) % n_, n_);
  }
  /// The elements of the `move`'s piece of chunk `index`.
  Range piece(int index, std::size_t move) const {
    const Range whole = chunk(index);
    const Range part = aligned_part(size_of_range(whole), element_bytes(), static_cast<int>(move % pieces_),
                                    static_cast<int>(pieces_));
    return {whole.begin + part.begin, whole.begin + part.end};
  }
  Range largest_piece() const {
    Range largest;
    for (int index = 0; index < n_; ++index) {
      for (std::size_t p = 0; p < pieces_; ++p) {
        const Range candidate = piece(index, p);
        if (candidate.size() > largest.size()) largest = candidate;
      }
    }
    return largest;
  }
  Range outgoing(std::size_t move) const { return piece(party_.index - step_of(move), move); }
  Range incoming(std::size_t move) const { return piece(party_.index - step_of(move) - 1, move); }

  std::byte* at(const Range& range) const {
    return static_cast<std::byte*>(values_.data) + static_cast<std::size_t>(range.begin) * element_bytes();
  }
  std::byte* landing(std::size_t move) {
    return arriving_->data() + (move % kMessagesUnderWay) * (arriving_->size() / kMessagesUnderWay);
  }

  bool post_receives() {
    bool moved = false;
    while (expected_ < moves_ && expected_ < arrived_ + kMessagesUnderWay) {
      // A piece that comes back as a sum lands where a send of ours may still be reading.
      const std::size_t round_trip = static_cast<std::size_t>(n_ - 1) * pieces_;
      if (!reduces(expected_) && expected_ - round_trip >= sent_) break;
      const Range range = incoming(expected_);
      std::byte* const into = reduces(expected_) ? landing(expected_) : at(range);
      const Owner owner = reduces(expected_) ? Owner(arriving_) : values_.owner;
      receives_[expected_ % kMessagesUnderWay] =
          size_of_range(range) == 0
              ? Transfer()
              : Transfer::receive(party_.channel, into, size_of_range(range) * element_bytes(), party_.at(-1),
                                  owner);
      ++expected_;
      moved = true;
    }
    return moved;
  }

  bool post_sends() {
    bool moved = false;
    while (posted_ < moves_ && posted_ < sent_ + kMessagesUnderWay) {
      if (posted_ >= pieces_ && arrived_ <= posted_ - pieces_) break;  // what it passes on has not come yet
      const Range range = outgoing(posted_);
      const std::size_t bytes = size_of_range(range) * element_bytes();
      sends_[posted_ % kMessagesUnderWay] =
          bytes == 0 ? Transfer()
                     : Transfer::send(party_.channel, at(range), bytes, party_.at(1), values_.owner);
      bytes_sent_ += static_cast<std::int64_t>(bytes);
      ++posted_;
      moved = true;
    }
    return moved;
  }

  bool take_arrivals() {
    bool moved = false;
    while (arrived_ < expected_ && receives_[arrived_ % kMessagesUnderWay].test()) {
      const Range range = incoming(arrived_);
      if (reduces(arrived_)) {
        reduce_into(at(range), landing(arrived_), size_of_range(range), values_.type, op_);
      }
      bytes_received_ += range.size() * static_cast<std::int64_t>(element_bytes());
      ++arrived_;
      moved = true;
    }
    return moved;
  }

  bool finish_sends() {
    bool moved = false;
    while (sent_ < posted_ && sends_[sent_ % kMessagesUnderWay].test()) {
      ++sent_;
      moved = true;
    }
    return moved;
  }

  Party party_;
  Buffer values_;
  ReduceOp op_;
  int n_;
  std::size_t pieces_ = 1;
  std::size_t moves_ = 0;
  std::shared_ptr<std::vector<std::byte>> arriving_ = std::make_shared<std::vector<std::byte>>();
  std::array<Transfer, kMessagesUnderWay> receives_;
  std::array<Transfer, kMessagesUnderWay> sends_;
  std::size_t expected_ = 0;  ///< Receives posted.
  std::size_t arrived_ = 0;   ///< Receives complete and used.
  std::size_t posted_ = 0;    ///< Sends posted.
  std::size_t sent_ = 0;      ///< Sends complete.
};

}  // namespace

std::unique_ptr<Step> make_ring_all_reduce(Party party, Buffer values, ReduceOp op) {
  return std::make_unique<RingAllReduce>(std::move(party), std::move(values), op);
}

}  // namespace dtrain::comm
