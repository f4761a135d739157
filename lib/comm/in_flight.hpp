#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/operation.hpp"
#include "core/error.hpp"
#include "core/running_time.hpp"
#include "core/span_sink.hpp"

namespace dtrain::comm {

class FlightRecorder;
class Inquiry;
class Health;

/// The operations of a queue that are not complete, in their order. Neither thread-safe nor driven: the queue
/// decides which thread moves them on, and when. The first failure is kept, and ends all of them.
class InFlight {
 public:
  /// `timeout_s`: longest from start to end of one operation; 0: no limit. `allowance` (null: none): seconds
  /// that it may take now, if that is more. Time in which this process was suspended does not count, nor does
  /// what it computes for long without a look. The others as in Queue.
  InFlight(double timeout_s, std::shared_ptr<const std::atomic<double>> allowance, SpanSink& sink,
           Health& health, FlightRecorder* recorder, const Inquiry* inquiry)
      : timeout_s_(timeout_s),
        allowance_(std::move(allowance)),
        time_(RunningTime::gap_for(timeout_s)),
        sink_(sink),
        health_(health),
        recorder_(recorder),
        inquiry_(inquiry) {}

  std::uint64_t add(std::unique_ptr<Operation> operation);    ///< At the end. Its sequence number.
  bool idle() const { return failure_ || entries_.empty(); }  ///< Nothing is left that could move on.
  std::uint64_t begin() const { return base_; }               ///< No operation before it is under way.
  std::uint64_t end() const { return base_ + entries_.size(); }
  bool done(std::uint64_t sequence) const {
    return sequence < base_ || (!failure_ && !entries_[index(sequence)].operation);
  }
  /// One that is not done, of a queue that has not failed.
  Operation& operation(std::uint64_t sequence) { return *entries_[index(sequence)].operation; }
  Operation* only() const;  ///< The one that is under way; null where none is, or several are.

  /// One attempt at the newest, unless another of its lane comes first. Throws Error as advance_all() does.
  void start_newest();
  /// Moves on whatever may run: of each lane its first operation. True if any completed. Throws Error when
  /// one fails; a death that explains it is told instead.
  bool advance_all();
  /// For waits, where nothing has moved: lets MPI go on with what earlier operations have left to it. Throws
  /// Error when a peer is gone or an operation takes longer than allowed.
  void check_limits();

  /// Drops all operations and tells the peers. The first error is the one that is thrown from now on.
  void fail(const Error& error) noexcept;
  void drop(const Error& error) noexcept;  ///< The same without telling the peers.
  bool failed() const { return failure_.has_value(); }
  void throw_if_failed() const {
    if (failure_) throw Error(*failure_);
  }

 private:
  struct Entry {
    std::unique_ptr<Operation> operation;  ///< Empty once complete, or after a failure.
    std::int64_t start_ns = 0;             ///< 0 until it was started.
    double start_s = 0;                    ///< The same in time that counts for the limit.
    std::uint64_t flight = 0;              ///< Of the recorder.
  };
  std::size_t index(std::uint64_t sequence) const { return static_cast<std::size_t>(sequence - base_); }
  bool records(const Entry& entry) const {
    return recorder_ != nullptr && entry.operation->label() != nullptr;
  }
  bool advance(Entry& entry);
  void complete(Entry& entry);
  void drop_completed();
  Error overdue(const Operation& operation) const;
  Error cause_of(const Error& error, double within_s);
  double limit_s() const;

  const double timeout_s_;
  std::shared_ptr<const std::atomic<double>> allowance_;
  RunningTime time_;
  SpanSink& sink_;
  Health& health_;
  FlightRecorder* recorder_;
  const Inquiry* inquiry_;
  std::deque<Entry> entries_;
  std::uint64_t base_ = 0;  ///< Sequence number of entries_.front().
  std::vector<const void*> busy_lanes_;
  std::optional<Error> failure_;
};

}  // namespace dtrain::comm
