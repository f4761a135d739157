#include <algorithm>
#include <utility>
#include <vector>

#include "comm/collectives/message_steps.hpp"
#include "comm/collectives/reduce.hpp"

namespace dtrain::comm {
namespace {

/// The children and the parent of a place in a binomial tree whose root is place 0.
struct BinomialTree {
  explicit BinomialTree(const Party& party) {
    int distance = 1;
    while (distance < party.size() && (party.index & distance) == 0) {
      if (party.index + distance < party.size()) children.push_back(party.at(distance));
      distance *= 2;
    }
    if (party.index != 0) parent = party.at(-distance);
  }
  std::vector<int> children;  ///< Nearest first: the order in which their sums are complete.
  int parent = -1;            ///< -1 at the root.
};

class TreeAllReduce final : public Step {
 public:
  TreeAllReduce(const Party& party, Buffer values, ReduceOp op)
      : channel_(party.channel), tree_(party), values_(std::move(values)), op_(op) {
    if (!tree_.children.empty()) arriving_->resize(values_.bytes());
  }

  bool advance() override {
    while (true) {
      if (state_ == State::gathering && child_ < tree_.children.size()) {
        if (!posted_) {
          transfer_ = Transfer::receive(channel_, arriving_->data(), values_.bytes(), tree_.children[child_],
                                        arriving_);
        }
        posted_ = true;
        if (!transfer_.test()) return false;
        reduce_into(values_.data, arriving_->data(), values_.count, values_.type, op_);
        bytes_received_ += static_cast<std::int64_t>(values_.bytes());
        posted_ = false;
        ++child_;
      } else if (state_ == State::gathering) {
        if (tree_.parent >= 0) {
          transfer_ = Transfer::send(channel_, values_.data, values_.bytes(), tree_.parent, values_.owner);
          bytes_sent_ += static_cast<std::int64_t>(values_.bytes());
        }
        state_ = State::handing_up;
      } else if (state_ == State::handing_up) {
        if (!transfer_.test()) return false;
        if (tree_.parent >= 0) {
          transfer_ = Transfer::receive(channel_, values_.data, values_.bytes(), tree_.parent, values_.owner);
          bytes_received_ += static_cast<std::int64_t>(values_.bytes());
        }
        state_ = State::awaiting_sum;
      } else if (state_ == State::awaiting_sum) {
        if (!transfer_.test()) return false;
        for (auto child = tree_.children.rbegin(); child != tree_.children.rend();
             ++child) {  // deepest first
          sends_.push_back(Transfer::send(channel_, values_.data, values_.bytes(), *child, values_.owner));
          bytes_sent_ += static_cast<std::int64_t>(values_.bytes());
        }
        state_ = State::handing_down;
      } else {
        while (!sends_.empty() && sends_.back().test()) sends_.pop_back();
        return sends_.empty();
      }
    }
  }

 private:
  enum class State { gathering, handing_up, awaiting_sum, handing_down };
  Channel channel_;
  BinomialTree tree_;
  Buffer values_;
  ReduceOp op_;
  State state_ = State::gathering;
  std::size_t child_ = 0;
  bool posted_ = false;
  Transfer transfer_;
  std::vector<Transfer> sends_;
  std::shared_ptr<std::vector<std::byte>> arriving_ = std::make_shared<std::vector<std::byte>>();
};

/// Pieces go down the tree one behind another, so that all levels work at once.
class TreeBroadcast final : public Step {
 public:
  TreeBroadcast(const Party& party, std::span<std::byte> bytes, Owner owner)
      : channel_(party.channel), tree_(party), bytes_(bytes), owner_(std::move(owner)) {
    pieces_ = std::max<std::size_t>(1, (bytes_.size() + kPieceBytes - 1) / kPieceBytes);
  }

  bool advance() override {
    while (arrived_ < pieces_) {
      if (tree_.parent >= 0 && !posted_) {
        receive_ = Transfer::receive(channel_, at(arrived_), bytes_of(arrived_), tree_.parent, owner_);
        bytes_received_ += static_cast<std::int64_t>(bytes_of(arrived_));
        posted_ = true;
      }
      if (!receive_.test()) return false;
      for (auto child = tree_.children.rbegin(); child != tree_.children.rend(); ++child) {
        sends_.push_back(Transfer::send(channel_, at(arrived_), bytes_of(arrived_), *child, owner_));
        bytes_sent_ += static_cast<std::int64_t>(bytes_of(arrived_));
      }
      posted_ = false;
      ++arrived_;
      forget_sent();
    }
    forget_sent();
    return sends_.empty();
  }

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  void forget_sent() {
    std::erase_if(sends_, [](Transfer& transfer) { return transfer.test(); });
  }
  std::byte* at(std::size_t piece) const { return bytes_.data() + piece * kPieceBytes; }
  std::size_t bytes_of(std::size_t piece) const {
    return std::min(kPieceBytes, bytes_.size() - piece * kPieceBytes);
  }
  Channel channel_;
  BinomialTree tree_;
  std::span<std::byte> bytes_;
  Owner owner_;
  std::size_t pieces_ = 1;
  std::size_t arrived_ = 0;
  bool posted_ = false;
  Transfer receive_;
  std::vector<Transfer> sends_;
};

}  // namespace

std::unique_ptr<Step> make_tree_all_reduce(Party party, Buffer values, ReduceOp op) {
  return std::make_unique<TreeAllReduce>(party, std::move(values), op);
}

std::unique_ptr<Step> make_tree_broadcast(Party party, Buffer values) {
  const std::span bytes(static_cast<std::byte*>(values.data), values.bytes());
  return std::make_unique<TreeBroadcast>(party, bytes, std::move(values.owner));
}

std::unique_ptr<Step> make_tree_broadcast(Party party, std::span<std::byte> bytes) {
  return std::make_unique<TreeBroadcast>(party, bytes, nullptr);
}

}  // namespace dtrain::comm
