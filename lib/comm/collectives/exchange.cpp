// Collectives in which everyone sends to everyone, and single messages.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "comm/collectives/message_steps.hpp"
#include "comm/collectives/reduce.hpp"

namespace dtrain::comm {
namespace {

constexpr int kPeersAtATime = 4;

/// In round r this rank sends to the one r places on and receives from the one r places back, so that in no
/// round two ranks send to the same one.
class Exchange final : public Step {
 public:
  Exchange(Party party, std::vector<Buffer> outgoing, std::vector<Buffer> incoming)
      : party_(std::move(party)), outgoing_(std::move(outgoing)), incoming_(std::move(incoming)) {}

  /// Reduces into `result` what arrives.
  Exchange(Party party, std::vector<Buffer> outgoing, Buffer result, ReduceOp op)
      : party_(std::move(party)),
        outgoing_(std::move(outgoing)),
        result_(std::move(result)),
        op_(op),
        reduces_(true) {}

  bool advance() override {
    if (posted_ == 0) {
      if (reduces_) make_room();
      copy_own();
    }
    while (finished_ < party_.size()) {
      while (posted_ < party_.size() && posted_ < finished_ + window_) post(posted_++);
      const std::size_t slot = static_cast<std::size_t>(finished_ % window_);
      if (!receives_[slot].test() || !sends_[slot].test()) return false;
      if (reduces_) {
        reduce_into(result_.data, incoming_[slot].data, result_.count, result_.type, op_);
      }
      ++finished_;
    }
    return true;
  }

 private:
  int place(int distance) const {
    return ((party_.index + distance) % party_.size() + party_.size()) % party_.size();
  }

  /// For what arrives, not before the operation's turn: many may be waiting for theirs.
  void make_room() {
    const auto slots = static_cast<std::size_t>(window_);
    const auto arriving = std::make_shared<std::vector<std::byte>>(result_.bytes() * slots);
    const Buffer all = {arriving->data(), result_.count * slots, result_.type, arriving};
    for (std::size_t slot = 0; slot < slots; ++slot)
      incoming_.push_back(all.part(slot * result_.count, result_.count));
  }

  void copy_own() {
    const Buffer& own = outgoing_[static_cast<std::size_t>(party_.index)];
    const Buffer& target = reduces_ ? result_ : incoming_[static_cast<std::size_t>(party_.index)];
    if (own.data != target.data && own.count > 0) std::memmove(target.data, own.data, own.bytes());
    posted_ = finished_ = 1;
  }

  void post(int round) {
    const std::size_t slot = static_cast<std::size_t>(round % window_);
    const Buffer& out = outgoing_[static_cast<std::size_t>(place(round))];
    const Buffer& in = incoming_[reduces_ ? slot : static_cast<std::size_t>(place(-round))];
    if (in.count > 0)
      receives_[slot] = Transfer::receive(party_.channel, in.data, in.bytes(), party_.at(-round), in.owner);
    if (out.count > 0)
      sends_[slot] = Transfer::send(party_.channel, out.data, out.bytes(), party_.at(round), out.owner);
    bytes_received_ += static_cast<std::int64_t>(in.bytes());
    bytes_sent_ += static_cast<std::int64_t>(out.bytes());
  }

  Party party_;
  std::vector<Buffer> outgoing_;  ///< By place in the party.
  std::vector<Buffer> incoming_;  ///< By place, or by slot when reducing.
  Buffer result_;
  ReduceOp op_ = ReduceOp::sum;
  bool reduces_ = false;
  int window_ = std::clamp(party_.size() - 1, 1, kPeersAtATime);  ///< Rounds at a time.
  std::array<Transfer, kPeersAtATime> receives_;
  std::array<Transfer, kPeersAtATime> sends_;
  int posted_ = 0;    ///< Rounds begun; round 0 is this rank's own part.
  int finished_ = 0;  ///< Rounds complete.
};

class MessageBarrier final : public Step {
 public:
  explicit MessageBarrier(Party party) : party_(std::move(party)) {}

  bool advance() override {
    while (distance_ < party_.size()) {
      if (!posted_) {
        receive_ = Transfer::receive(party_.channel, nullptr, 0, party_.at(-distance_));
        send_ = Transfer::send(party_.channel, nullptr, 0, party_.at(distance_));
        posted_ = true;
      }
      if (!receive_.test() || !send_.test()) return false;
      posted_ = false;
      distance_ *= 2;
    }
    return true;
  }

 private:
  Party party_;
  int distance_ = 1;
  bool posted_ = false;
  Transfer receive_;
  Transfer send_;
};

enum class Direction { send, receive };

class Message final : public Step {
 public:
  Message(const Channel& channel, Buffer values, int peer, Direction direction)
      : channel_(channel), values_(std::move(values)), peer_(peer), direction_(direction) {
    (direction == Direction::send ? bytes_sent_ : bytes_received_) =
        static_cast<std::int64_t>(values_.bytes());
  }

  bool advance() override {
    if (!posted_) {
      transfer_ = direction_ == Direction::send
                      ? Transfer::send(channel_, values_.data, values_.bytes(), peer_, values_.owner)
                      : Transfer::receive(channel_, values_.data, values_.bytes(), peer_, values_.owner);
      posted_ = true;
    }
    return transfer_.test();
  }

 private:
  Channel channel_;
  Buffer values_;
  int peer_;
  Direction direction_;
  bool posted_ = false;
  Transfer transfer_;
};

}  // namespace

std::unique_ptr<Step> make_exchange(Party party, std::vector<Buffer> outgoing, std::vector<Buffer> incoming) {
  return std::make_unique<Exchange>(std::move(party), std::move(outgoing), std::move(incoming));
}

std::unique_ptr<Step> make_reducing_exchange(Party party, std::vector<Buffer> outgoing, Buffer result,
                                             ReduceOp op) {
  return std::make_unique<Exchange>(std::move(party), std::move(outgoing), std::move(result), op);
}

std::unique_ptr<Step> make_message_barrier(Party party) {
  return std::make_unique<MessageBarrier>(std::move(party));
}

std::unique_ptr<Step> make_send(const Channel& channel, Buffer values, int to) {
  return std::make_unique<Message>(channel, std::move(values), to, Direction::send);
}

std::unique_ptr<Step> make_receive(const Channel& channel, Buffer values, int from) {
  return std::make_unique<Message>(channel, std::move(values), from, Direction::receive);
}

}  // namespace dtrain::comm
