#pragma once

#include <cstdint>
#include <string>

#include "comm/traffic.hpp"

namespace dtrain::comm {

/// A part of an operation: a state machine that never blocks. An all_reduce over nodes is three of them.
class Step {
 public:
  virtual ~Step() = default;
  /// Does what can be done without waiting; true once complete, and not called again. Throws Error.
  virtual bool advance() = 0;
  /// As Operation::sleep.
  virtual bool sleep(double /*limit_s*/) { return false; }
  /// Which ranks have not arrived, as far as this rank can know.
  virtual std::string missing() const { return {}; }

  std::int64_t bytes_sent() const { return bytes_sent_; }
  std::int64_t bytes_received() const { return bytes_received_; }
  /// Counts these bytes by the ranks at the other ends, once complete; its messages count themselves.
  void count_by_rank() const {
    if (by_rank_ != nullptr) by_rank_->add(bytes_sent_, bytes_received_);
  }

 protected:
  /// Adds up what a part of this one, which is complete, has sent and received.
  void count(const Step& part) {
    bytes_sent_ += part.bytes_sent();
    bytes_received_ += part.bytes_received();
    part.count_by_rank();
  }

  std::int64_t bytes_sent_ = 0;
  std::int64_t bytes_received_ = 0;
  ByteCount* by_rank_ = nullptr;  ///< Of a step without messages; null: not counted.
};

}  // namespace dtrain::comm
