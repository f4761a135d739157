#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/label.hpp"
#include "comm/mpi/communicator.hpp"
#include "comm/shared_memory/shared_memory.hpp"
#include "core/span_sink.hpp"

namespace dtrain::comm {

/// One operation of communication as it is kept: plain bytes, which other processes read.
struct Flight {
  std::array<char, 12> group{};  ///< Its name, ended by 0.
  std::array<char, 16> operation{};
  std::uint64_t group_id = 0;  ///< Label::group_id
  std::uint64_t number = 0;    ///< Label::number
  std::uint64_t count = 0;     ///< Elements; 0 where there are none.
  DataType type = DataType::float32;
  bool is_message = false;     ///< Counted apart, by each rank for itself.
  std::int64_t queued_ns = 0;  ///< steady_ns(); 0 in the next two: not yet.
  std::int64_t started_ns = 0;
  std::int64_t ended_ns = 0;
};

/// What a rank tells the others about itself all the time: its last operations of communication, and what its
/// compute thread does. It lies in memory that the ranks of the node share, so that they can read it while
/// the rank computes, is suspended or is dead, and say what keeps them waiting.
///
/// Written by one rank without locks; a reader may meanwhile see the newest operation half written.
/// Spans pass through to the sink behind it.
class FlightRecorder final : public PassingSpanSink {
 public:
  static constexpr std::size_t kFlights = 256;

  /// `local`: the ranks of this node; `world_rank`: this one in MPI_COMM_WORLD. Collective over `local`.
  FlightRecorder(const Communicator& local, int world_rank, SpanSink& sink);
  ~FlightRecorder() override;

  /// Of the shared memory that each rank of a node takes.
  static std::size_t bytes_per_rank();

  std::uint64_t queued(const Label& label);  ///< A number to name the operation by.
  void started(std::uint64_t flight, std::int64_t now_ns);
  void ended(std::uint64_t flight, std::int64_t now_ns);

  void begin_step(std::int64_t step);
  void enter(Phase phase, std::string_view name) override;
  void leave() override;

  /// Why an operation is not complete after `limit_s`: a clause on each rank of this node that has not
  /// done its part. It is dead, suspended, mismatched, missing (it has not come and does not move) or slow.
  /// `asker`: whose operation it is; Asker::here: this rank's, so that what it has left out itself is found
  /// too.
  enum class Asker { here, elsewhere };
  std::vector<std::string> findings(const Label& overdue, double limit_s, Asker asker = Asker::here) const;

  /// World ranks of this node.
  std::vector<int> ranks() const;
  /// That rank's operations, oldest first, as comma-separated lines with a header; times in seconds since
  /// `start_ns`, empty where there is none.
  void print(int world_rank, std::int64_t start_ns, std::ostream& out) const;

 private:
  struct Line;
  Line& line(int local_rank) const;
  std::vector<Flight> flights_of(const Line& line) const;
  std::string finding(const Line& line, const Label& overdue, std::int64_t now_ns, double limit_s,
                      Asker asker) const;
  bool has_entered(const Flight& flight) const;

  int local_rank_;
  int local_size_;
  std::optional<SharedMemory> memory_;
  std::unique_ptr<Line> alone_;  // where there is no such memory
  Line* mine_;
  std::array<Phase, 32> open_{};
  std::size_t depth_ = 0;
};

}  // namespace dtrain::comm
