#include "comm/survey/link_speeds.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <memory>
#include <string>

#include "comm/mpi/transfer.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

constexpr int kMostRounds = 64;
constexpr int kLinkTag = 1;

/// One end of a link under test.
class LinkEnd {
 public:
  LinkEnd(const Communicator& world, const topology::Cluster& cluster, const LinkTest& test)
      : channel_{.comm = world.handle(), .tag = kLinkTag},
        cluster_(cluster),
        test_(test),
        me_(world.rank()),
        buffer_(std::make_shared<std::vector<std::byte>>(test.bytes)) {}

  /// Seconds of the quickest message from this rank to the other, or back.
  double time_to(int peer) {
    return quickest(peer, [this](int to) { return send(to); });
  }
  double time_from(int peer) {
    return quickest(peer, [this](int from) { return receive(from); });
  }

 private:
  template <typename Direction>
  double quickest(int peer, Direction direction) {
    double best_s = direction(peer);  // opens the connection, and is not counted where more follow
    for (int i = 0; i < test_.repeats; ++i) {
      const double time_s = direction(peer);
      best_s = i == 0 ? time_s : std::min(best_s, time_s);
    }
    return best_s;
  }

  double send(int to) {
    std::byte word{};
    wait(Transfer::receive(channel_, &word, 1, to), to, me_);  // it is ready
    const double begun_s = steady_s();
    wait(Transfer::send(channel_, buffer_->data(), buffer_->size(), to, buffer_), me_, to);
    wait(Transfer::receive(channel_, &word, 1, to), me_, to);  // it has all
    return steady_s() - begun_s;
  }

  double receive(int from) {
    std::byte word{};
    wait(Transfer::send(channel_, &word, 1, from), me_, from);
    const double begun_s = steady_s();
    wait(Transfer::receive(channel_, buffer_->data(), buffer_->size(), from, buffer_), from, me_);
    wait(Transfer::send(channel_, &word, 1, from), me_, from);
    return steady_s() - begun_s;
  }

  void wait(Transfer transfer, int from, int to) const {
    const double end_s = steady_s() + test_.limit_s;
    while (!transfer.test()) {
      if (steady_s() > end_s) {
        const auto host = [this](int rank) {
          return cluster_.ranks[static_cast<std::size_t>(rank)].hostname;
        };
        throw Error(
            fmt::format("a message of {} bytes did not arrive within {} s", test_.bytes, test_.limit_s),
            {.subject = fmt::format("link {} -> {}", host(from), host(to)),
             .advice = "look at the network between them, or leave one of the nodes out"});
      }
      ::sched_yield();
    }
  }

  Channel channel_;
  const topology::Cluster& cluster_;
  const LinkTest& test_;
  int me_;
  std::shared_ptr<std::vector<std::byte>> buffer_;
};

/// The pieces of a list that its ranks hold, on all of them. Collective.
std::vector<LinkSpeed> gathered(const Communicator& world, const std::vector<LinkSpeed>& mine) {
  std::string text;
  for (const LinkSpeed& link : mine) text.append(reinterpret_cast<const char*>(&link), sizeof link);
  std::vector<LinkSpeed> all;
  for (const std::string& part : world.all_gather(text)) {
    const auto first = all.size();
    all.resize(first + part.size() / sizeof(LinkSpeed));
    part.copy(reinterpret_cast<char*>(all.data() + first), part.size());
  }
  return all;
}

}  // namespace

int rounds_of(int nodes) { return std::min(kMostRounds, nodes + nodes % 2 - 1); }

// The circle method: one stays, the others move on by a place each round. With an odd number the one that
// meets the last seat has a rest.
std::vector<std::pair<int, int>> pairs_of_round(int nodes, int round) {
  const int seats = nodes + nodes % 2;
  const int moving = seats - 1;
  std::vector<std::pair<int, int>> pairs;
  const auto add = [&](int one, int other) {
    if (one < nodes && other < nodes) pairs.emplace_back(std::min(one, other), std::max(one, other));
  };
  add(round % moving, moving);
  for (int i = 1; i < seats / 2; ++i) add((round + i) % moving, (round + moving - i) % moving);
  return pairs;
}

std::vector<LinkSpeed> measure_link_speeds(const Communicator& world, const topology::Cluster& cluster,
                                           const LinkTest& test) {
  const std::vector<int> leaders = cluster.leaders();
  const int nodes = cluster.node_count();
  LinkEnd end(world, cluster, test);
  std::vector<LinkSpeed> mine;
  const auto bytes = static_cast<double>(test.bytes);
  for (int round = 0; round < rounds_of(nodes); ++round) {
    for (const auto& [low, high] : pairs_of_round(nodes, round)) {
      const int low_rank = leaders[static_cast<std::size_t>(low)];
      const int high_rank = leaders[static_cast<std::size_t>(high)];
      if (world.rank() == low_rank) {
        mine.push_back({.from = low, .to = high, .bytes_per_s = bytes / end.time_to(high_rank)});
        mine.push_back({.from = high, .to = low, .bytes_per_s = bytes / end.time_from(high_rank)});
      } else if (world.rank() == high_rank) {
        end.time_from(low_rank);
        end.time_to(low_rank);
      }
    }
    world.patient_barrier();
  }
  return gathered(world, mine);
}

std::vector<LinkSpeed> measure_again(const Communicator& world, const topology::Cluster& cluster,
                                     const std::vector<LinkSpeed>& links, const LinkTest& test) {
  const std::vector<int> leaders = cluster.leaders();
  LinkEnd end(world, cluster, test);
  std::vector<LinkSpeed> mine;
  for (const LinkSpeed& link : links) {
    const int from = leaders[static_cast<std::size_t>(link.from)];
    const int to = leaders[static_cast<std::size_t>(link.to)];
    if (world.rank() == from) {
      mine.push_back({.from = link.from,
                      .to = link.to,
                      .bytes_per_s = static_cast<double>(test.bytes) / end.time_to(to)});
    } else if (world.rank() == to) {
      end.time_from(from);
    }
    world.patient_barrier();
  }
  return gathered(world, mine);
}

}  // namespace dtrain::comm
