#include "comm/watch/flight_recorder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <new>
#include <ostream>

#include "core/clock.hpp"

namespace dtrain::comm {
namespace {

template <std::size_t N>
void put(std::array<char, N>& field, std::string_view text) {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(field.data(), text.data(), length);
  field[length] = '\0';
}

std::string_view phase_in_words(Phase phase) {
  return phase == Phase::exposed_communication ? "communication" : phase_name(phase);
}

std::string elements(std::uint64_t count, DataType type) {
  return count == 0 ? "nothing" : fmt::format("{} {}", count, name_of(type));
}

std::string text_of(const Flight& flight) {
  return fmt::format("{} number {} of group {}", flight.operation.data(), flight.number, flight.group.data());
}

/// `R`, `S`, `T`, ... as proc(5) has it; 0 where there is no such process.
char state_of_process(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const auto name_ends = text.rfind(')');  // the name may hold anything
  return name_ends == std::string::npos || name_ends + 2 >= text.size() ? '\0' : text[name_ends + 2];
}

}  // namespace

struct FlightRecorder::Line {
  int world_rank = -1;
  int pid = 0;
  std::atomic<Phase> phase{Phase::other};
  std::atomic<std::int64_t> phase_since_ns{0};
  std::atomic<std::int64_t> step{0};
  std::atomic<std::uint64_t> written{0};  ///< Operations so far.
  std::array<Flight, kFlights> flights;
};

FlightRecorder::FlightRecorder(const Communicator& local, int world_rank, SpanSink& sink)
    : PassingSpanSink(sink),
      local_rank_(local.rank()),
      local_size_(local.size()),
      memory_(local.size() > 1 ? SharedMemory::create(local, bytes_per_rank()) : std::nullopt) {
  if (memory_) {
    mine_ = new (memory_->part(local_rank_)) Line;
  } else {
    alone_ = std::make_unique<Line>();
    mine_ = alone_.get();
  }
  mine_->world_rank = world_rank;
  mine_->pid = ::getpid();
  mine_->phase_since_ns = steady_ns();
  local.barrier();  // all lines are there
}

FlightRecorder::~FlightRecorder() = default;

std::size_t FlightRecorder::bytes_per_rank() { return sizeof(Line); }

FlightRecorder::Line& FlightRecorder::line(int local_rank) const {
  return memory_ ? *reinterpret_cast<Line*>(memory_->part(local_rank)) : *mine_;
}

std::uint64_t FlightRecorder::queued(const Label& label) {
  const std::uint64_t number = mine_->written.load(std::memory_order_relaxed);
  Flight& flight = mine_->flights[number % kFlights];
  flight.ended_ns = flight.started_ns = 0;
  put(flight.group, label.group);
  put(flight.operation, label.operation);
  flight.group_id = label.group_id;
  flight.number = label.number;
  flight.count = label.count;
  flight.type = label.type;
  flight.is_message = label.peer >= 0;
  flight.queued_ns = steady_ns();
  mine_->written.store(number + 1, std::memory_order_release);
  return number;
}

void FlightRecorder::started(std::uint64_t flight, std::int64_t now_ns) {
  mine_->flights[flight % kFlights].started_ns = now_ns;
}

void FlightRecorder::ended(std::uint64_t flight, std::int64_t now_ns) {
  mine_->flights[flight % kFlights].ended_ns = now_ns;
}

void FlightRecorder::begin_step(std::int64_t step) { mine_->step.store(step, std::memory_order_relaxed); }

void FlightRecorder::enter(Phase phase, std::string_view name) {
  if (depth_ < open_.size()) open_[depth_] = mine_->phase.load(std::memory_order_relaxed);
  ++depth_;
  mine_->phase.store(phase, std::memory_order_relaxed);
  mine_->phase_since_ns.store(steady_ns(), std::memory_order_relaxed);
  PassingSpanSink::enter(phase, name);
}

void FlightRecorder::leave() {
  PassingSpanSink::leave();
  --depth_;
  if (depth_ < open_.size()) mine_->phase.store(open_[depth_], std::memory_order_relaxed);
  mine_->phase_since_ns.store(steady_ns(), std::memory_order_relaxed);
}

std::vector<Flight> FlightRecorder::flights_of(const Line& line) const {
  const std::uint64_t written = line.written.load(std::memory_order_acquire);
  std::vector<Flight> flights;
  for (auto i = written - std::min<std::uint64_t>(written, kFlights); i < written; ++i) {
    flights.push_back(line.flights[i % kFlights]);
  }
  return flights;
}

/// False where this rank takes part in that group, and has never come to that collective.
bool FlightRecorder::has_entered(const Flight& flight) const {
  const auto own = flights_of(*mine_);
  if (flight.is_message) return true;
  const auto of_group = [&](const Flight& other) {
    return other.group_id == flight.group_id && !other.is_message;
  };
  return std::ranges::none_of(own, of_group) || std::ranges::any_of(own, [&](const Flight& other) {
           return of_group(other) && other.number >= flight.number;
         });
}

/// Empty when the rank has done its part.
std::string FlightRecorder::finding(const Line& line, const Label& overdue, std::int64_t now_ns,
                                    double limit_s, Asker asker) const {
  const auto flights = flights_of(line);
  const auto counterpart = std::ranges::find_if(flights, [&](const Flight& flight) {
    return overdue.peer < 0 && !flight.is_message && flight.group_id == overdue.group_id &&
           flight.number == overdue.number;
  });
  const std::string name = fmt::format("rank {}", line.world_rank);
  const bool arrived = counterpart != flights.end();
  if (arrived && counterpart->operation.data() != overdue.operation) {
    return fmt::format("{} is mismatched: its operation of that number is {}", name,
                       counterpart->operation.data());
  }
  if (arrived && (counterpart->count != overdue.count || counterpart->type != overdue.type)) {
    return fmt::format("{} is mismatched: it passed {} where this rank passed {}", name,
                       elements(counterpart->count, counterpart->type),
                       elements(overdue.count, overdue.type));
  }
  const char state = state_of_process(line.pid);
  const double phase_s = static_cast<double>(now_ns - line.phase_since_ns.load()) * 1e-9;
  const std::string place =
      fmt::format("in {} of step {} for {:.1f} s", phase_in_words(line.phase), line.step.load(), phase_s);
  if (state == '\0' || state == 'Z') return fmt::format("{} is dead: process {} is gone", name, line.pid);
  if (state == 'T' || state == 't') {
    return fmt::format("{} is suspended: process {} was stopped by a signal, {}", name, line.pid, place);
  }
  if (arrived) return {};
  // What it waits for in its turn; compute shows no such thing.
  const auto waits = std::ranges::find_if(flights.rbegin(), flights.rend(), [&](const Flight& flight) {
    return flight.started_ns != 0 && flight.ended_ns == 0;
  });
  if (waits != flights.rend() && line.phase.load() == Phase::exposed_communication) {
    const bool left_out = asker == Asker::here && !has_entered(*waits);
    return fmt::format("{} is missing: it waits in {}{}, {}", name, text_of(*waits),
                       left_out ? fmt::format(", which rank {} has left out", mine_->world_rank) : "", place);
  }
  return fmt::format("{} is {}: {}", name, phase_s < limit_s / 2 ? "slow" : "missing", place);
}

std::vector<std::string> FlightRecorder::findings(const Label& overdue, double limit_s, Asker asker) const {
  const std::int64_t now_ns = steady_ns();
  const auto takes_part = [&](int rank) {
    if (overdue.peer >= 0) return rank == overdue.peer;
    return overdue.members != nullptr && std::ranges::find(*overdue.members, rank) != overdue.members->end();
  };
  std::vector<std::string> findings;
  for (int local_rank = 0; local_rank < (memory_ ? local_size_ : 1); ++local_rank) {
    const Line& other = line(local_rank);
    // The peers may wait for it in their turn; one that is gone may have been lost, and done without, before.
    const bool is_suspended = memory_ && state_of_process(other.pid) == 'T';
    if (!takes_part(other.world_rank) && !is_suspended) continue;
    auto found = finding(other, overdue, now_ns, limit_s, asker);
    if (!found.empty()) findings.push_back(std::move(found));
  }
  return findings;
}

std::vector<int> FlightRecorder::ranks() const {
  std::vector<int> ranks;
  if (!memory_) return {mine_->world_rank};
  for (int rank = 0; rank < local_size_; ++rank) ranks.push_back(line(rank).world_rank);
  return ranks;
}

void FlightRecorder::print(int world_rank, std::int64_t start_ns, std::ostream& out) const {
  const auto here = ranks();
  const auto place = std::ranges::find(here, world_rank);
  if (place == here.end()) return;
  const auto seconds = [&](std::int64_t ns) {
    return ns == 0 ? std::string() : fmt::format("{:.6f}", static_cast<double>(ns - start_ns) * 1e-9);
  };
  out << "group,number,operation,count,type,queued_s,started_s,ended_s\n";
  for (const Flight& flight : flights_of(line(static_cast<int>(place - here.begin())))) {
    out << fmt::format("{},{},{},{},{},{},{},{}\n", flight.group.data(), flight.number,
                       flight.operation.data(), flight.count, name_of(flight.type), seconds(flight.queued_ns),
                       seconds(flight.started_ns), seconds(flight.ended_ns));
  }
}

}  // namespace dtrain::comm
