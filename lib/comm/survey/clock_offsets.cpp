#include "comm/survey/clock_offsets.hpp"

#include <limits>
#include <span>

namespace dtrain::comm {
namespace {

constexpr int kQuestions = 12;  // the first ones also open the connection

std::span<std::byte> bytes_of(double& value) { return std::as_writable_bytes(std::span(&value, 1)); }

ClockOffset ask(const Communicator& world, int rank, const std::function<double()>& now_s) {
  ClockOffset best{.offset_s = 0, .uncertainty_s = std::numeric_limits<double>::infinity()};
  for (int i = 0; i < kQuestions; ++i) {
    double there_s = 0;
    const double asked_s = now_s();
    world.send_bytes(bytes_of(there_s), rank);
    world.receive_bytes(bytes_of(there_s), rank);
    const double answered_s = now_s();
    const double wait_s = answered_s - asked_s;
    if (wait_s / 2 < best.uncertainty_s)
      best = {.offset_s = there_s - (asked_s + answered_s) / 2, .uncertainty_s = wait_s / 2};
  }
  return best;
}

void answer(const Communicator& world, const std::function<double()>& now_s) {
  for (int i = 0; i < kQuestions; ++i) {
    double value_s = 0;
    world.receive_bytes(bytes_of(value_s), 0);
    value_s = now_s();
    world.send_bytes(bytes_of(value_s), 0);
  }
}

}  // namespace

std::vector<ClockOffset> measure_clock_offsets(const Communicator& world, const topology::Cluster& cluster,
                                               const std::function<double()>& now_s) {
  const std::vector<int> leaders = cluster.leaders();
  std::vector<ClockOffset> offsets(leaders.size());
  for (std::size_t node = 1; node < leaders.size(); ++node) {
    if (world.rank() == 0) offsets[node] = ask(world, leaders[node], now_s);
    if (world.rank() == leaders[node]) answer(world, now_s);
  }
  world.patient_barrier();
  world.broadcast_bytes(std::as_writable_bytes(std::span(offsets)), 0);
  return offsets;
}

}  // namespace dtrain::comm
