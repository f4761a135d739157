#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "comm/operation.hpp"
#include "core/span_sink.hpp"

namespace dtrain::comm {

class FlightRecorder;
class Inquiry;
class Health;
class Queue;

/// A ticket for one operation. Copyable; outliving the queue is an error.
class Handle {
 public:
  Handle() = default;  ///< Already done.
  bool done() const;   ///< Does not drive the queue.
  /// Drives the queue until this operation is complete. Throws Error when the operation failed, a peer died
  /// or the limit passed; then the queue is failed and every later wait throws the same.
  void wait() const;
  /// For uses of the result on its device only: what is put there from now on comes after the operation, and
  /// this thread waits for no more than that. Of operations on the CPU's memory the same as wait().
  void follow() const;

 private:
  friend class Queue;
  Handle(Queue* queue, std::uint64_t sequence) : queue_(queue), sequence_(sequence) {}
  Queue* queue_ = nullptr;
  std::uint64_t sequence_ = 0;
};

/// What moves the queue on. inline_: gradient hooks and waits of the compute thread; the default on CPU ranks
/// without a spare core. thread: a thread of its own; for a spare core or a GPU rank.
enum class Drive { inline_, thread };

struct QueueConfig {
  Drive drive = Drive::inline_;
  double timeout_s = 300;  ///< Longest from start to end of one operation; 0: no limit.
  std::shared_ptr<const std::atomic<double>> allowance = nullptr;  ///< Communicator::allowance()
  double spin_s = 0;  ///< Longest a wait may spin before it yields the core; 0 when cores are short.
};

/// The one ordered queue of communication of a rank. Thread-safe where a thread drives it; with inline_ one
/// thread at a time uses it, which gradient hooks of CPU ranks do.
class Queue {
 public:
  /// `health` tells when a peer is gone, `recorder` (null: none) keeps what happens and says why an operation
  /// takes too long, `inquiry` (null: none) asks that of other nodes; all are borrowed and outlive the queue.
  Queue(const QueueConfig& config, SpanSink& sink, Health& health, FlightRecorder* recorder = nullptr,
        const Inquiry* inquiry = nullptr);
  ~Queue();  ///< Does not wait: what is not complete is abandoned.
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Puts `operation` at the end and starts it if its lane is free. Throws Error when the queue has failed.
  Handle submit(std::unique_ptr<Operation> operation);

  /// Moves everything on that can move without waiting; cheap when nothing is in flight, nothing at all
  /// where a thread drives. Throws Error as Handle::wait does.
  void progress();

  void drain();  ///< Waits for everything submitted so far. Throws Error.
  bool idle() const;
  bool failed() const;

  /// Marks the queue failed: later calls throw `reason`. For callers that learn of a death elsewhere.
  void fail(std::string_view reason);
  /// The same without telling the peers: before memory goes that operations in flight may use.
  void drop(std::string_view reason);

 private:
  friend class Handle;
  bool done(std::uint64_t sequence) const;
  void wait(std::uint64_t sequence);
  void follow(std::uint64_t sequence);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dtrain::comm
