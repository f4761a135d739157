#include "comm/watch/roll_call.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/mpi/transfer.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/wait_until.hpp"

namespace dtrain::comm {
namespace {

constexpr int kRollCallTag = 2;
constexpr auto kPause = std::chrono::milliseconds(1);

void wait_for_all(const Communicator& world, const topology::Cluster& cluster, double limit_s) {
  std::byte word{};
  std::vector<std::pair<int, Transfer>> awaited;
  for (int rank = 1; rank < world.size(); ++rank)
    awaited.emplace_back(rank,
                         Transfer::receive({.comm = world.handle(), .tag = kRollCallTag}, &word, 1, rank));
  const bool all = wait_until(steady_s() + limit_s, kPause, [&awaited] {
    std::erase_if(awaited, [](auto& entry) { return entry.second.test(); });
    return awaited.empty();
  });
  if (all) return;
  std::vector<std::string> missing;
  for (const auto& [rank, transfer] : awaited)
    missing.push_back(
        fmt::format("rank {} on {}", rank, cluster.ranks[static_cast<std::size_t>(rank)].hostname));
  throw Error(fmt::format("{} {} not come within {} s", fmt::join(missing, ", "),
                          missing.size() == 1 ? "has" : "have", limit_s),
              {.subject = "roll call", .advice = "look whether that node answers, or leave it out"});
}

}  // namespace

void roll_call(const Communicator& world, const topology::Cluster& cluster, double limit_s) {
  if (world.rank() == 0) {
    wait_for_all(world, cluster, limit_s);
  } else {
    const std::byte word{};
    Transfer here = Transfer::send({.comm = world.handle(), .tag = kRollCallTag}, &word, 1, 0);
    while (!here.test()) std::this_thread::sleep_for(kPause);
  }
  world.patient_barrier();
}

}  // namespace dtrain::comm
