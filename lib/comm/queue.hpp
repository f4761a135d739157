#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>

#include "core/span_sink.hpp"

namespace dtrain::comm {

/// One operation on its way: a state machine that never blocks.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Does what can be done without waiting; true once the operation is complete. Throws Error.
  virtual bool advance() = 0;
  virtual std::string_view name() const = 0;  ///< `all_reduce`, ... (a literal).
};

class Queue;

/// A ticket for one operation. Copyable; outliving the queue is an error.
class Handle {
 public:
  Handle() = default;  ///< Already done.
  bool done() const;
  /// Drives the queue until this operation is complete. Throws Error when the operation failed, a peer died
  /// or the limit passed; then the queue is failed and every later wait throws the same.
  void wait() const;

 private:
  friend class Queue;
  Handle(Queue* queue, std::uint64_t sequence) : queue_(queue), sequence_(sequence) {}
  Queue* queue_ = nullptr;
  std::uint64_t sequence_ = 0;
};

}  // namespace dtrain::comm
