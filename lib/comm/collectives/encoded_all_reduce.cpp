#include "comm/collectives/encoded_all_reduce.hpp"

#include <utility>

namespace dtrain::comm {
namespace {

class EncodedAllReduce final : public Step {
 public:
  EncodedAllReduce(Party party, std::unique_ptr<MessageRounds> rounds)
      : party_(std::move(party)), rounds_(std::move(rounds)) {}

  bool advance() override {
    while (true) {
      if (exchange_ != nullptr) {
        if (!exchange_->advance()) return false;
        bytes_sent_ += exchange_->bytes_sent();
        bytes_received_ += exchange_->bytes_received();
      }
      auto round = rounds_->next();
      if (!round) return true;
      exchange_ = make_exchange(party_, std::move(round->outgoing), std::move(round->incoming));
    }
  }

 private:
  Party party_;
  std::unique_ptr<MessageRounds> rounds_;
  std::unique_ptr<Step> exchange_;  // of the round; null before the first
};

}  // namespace

std::unique_ptr<Step> make_encoded_all_reduce(Party party, std::unique_ptr<MessageRounds> rounds) {
  return std::make_unique<EncodedAllReduce>(std::move(party), std::move(rounds));
}

}  // namespace dtrain::comm
