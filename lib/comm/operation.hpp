#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrain::comm {

struct Label;

/// One operation on its way: a state machine that never blocks.
class Operation {
 public:
  virtual ~Operation() = default;

  /// Does what can be done without waiting; true once the operation is complete. Throws Error.
  virtual bool advance() = 0;
  /// Whether what this rank puts on its device from now on comes after the operation: it does (ordered), it
  /// can once the operation has been issued (not_yet), or only once it is complete.
  enum class Follow { ordered, not_yet, when_complete };
  virtual Follow follow() { return Follow::when_complete; }
  virtual std::string_view name() const = 0;  ///< `all_reduce`, ... (a literal).

  /// `all_reduce number 12 of group data (65536 float32)`: for the error of a wait that passed its limit.
  virtual std::string describe() const { return std::string(name()); }
  /// What it is, for records; null where records leave it out.
  virtual const Label* label() const { return nullptr; }
  /// Which ranks have not arrived, as far as this rank can know; empty when it cannot.
  virtual std::string missing() const { return {}; }

  /// Gives the core away until a peer may have moved on, at most `limit_s`; false where an operation cannot
  /// be told, and must be polled.
  virtual bool sleep(double /*limit_s*/) { return false; }

  /// Operations of one lane run one after another in order of submission; those of different lanes, and
  /// those without one (nullptr), beside each other.
  virtual const void* lane() const { return nullptr; }

  /// Payload to and from other ranks, valid once complete.
  std::int64_t bytes_sent() const { return bytes_sent_; }
  std::int64_t bytes_received() const { return bytes_received_; }

 protected:
  std::int64_t bytes_sent_ = 0;
  std::int64_t bytes_received_ = 0;
};

}  // namespace dtrain::comm
