#include "doctor/network.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>

#include "core/median.hpp"

namespace dtrain::doctor {
namespace {

// dtrain itself measures each node by its steady clock. But a reader of the logs and events of two nodes side
// by side takes what happened a step apart, tenths of a second, in the wrong order; and at a second the time
// of a file that another node wrote lies visibly in the future, for make, rsync and the file system's caches.
// A node that keeps time by NTP is within some milliseconds.
constexpr double kNote_s = 0.1;
constexpr double kProblem_s = 1.0;
constexpr const char* kKeepTime = "let chronyd or ntpd run there: chronyc tracking says how far it is off";

constexpr double kSlowPart = 0.5;

std::string seconds_in_words(double seconds) {
  return std::abs(seconds) < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

std::string speed_in_words(double bytes_per_s) {
  return bytes_per_s < 1e9 ? fmt::format("{:.0f} MB/s", bytes_per_s * 1e-6)
                           : fmt::format("{:.1f} GB/s", bytes_per_s * 1e-9);
}

}  // namespace

// Against the middle one of all clocks, so that it is named where rank 0's is the one that is off.
std::vector<Finding> judge_clocks(const std::vector<comm::ClockOffset>& offsets,
                                  const std::vector<std::string>& hosts) {
  std::vector<std::size_t> order(offsets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t node) { return offsets[node].offset_s; });
  const std::size_t middle = order[(order.size() - 1) / 2];
  std::vector<Finding> findings;
  double most_s = 0;
  for (std::size_t node = 0; node < offsets.size(); ++node) {
    const double ahead_s = offsets[node].offset_s - offsets[middle].offset_s;
    const double certain_s = std::abs(ahead_s) - offsets[node].uncertainty_s - offsets[middle].uncertainty_s;
    most_s = std::max(most_s, std::abs(ahead_s));
    if (certain_s < kNote_s) continue;
    const auto text =
        fmt::format("the clock of {} is {} {} that of {}", hosts[node], seconds_in_words(std::abs(ahead_s)),
                    ahead_s > 0 ? "ahead of" : "behind", hosts[middle]);
    findings.push_back(certain_s < kProblem_s ? note("clocks", text, kKeepTime)
                                              : problem("clocks", text, kKeepTime));
  }
  if (!findings.empty()) return findings;
  return {good("clocks", fmt::format("at most {} apart", seconds_in_words(most_s)))};
}

double expected_speed(const std::vector<comm::LinkSpeed>& links) {
  std::map<int, double> fastest;
  for (const auto& link : links) {
    for (const int node : {link.from, link.to}) fastest[node] = std::max(fastest[node], link.bytes_per_s);
  }
  std::vector<double> speeds;
  for (const auto& [node, speed] : fastest) speeds.push_back(speed);
  if (speeds.empty()) return 0;
  return median(speeds);
}

std::vector<comm::LinkSpeed> slow_links(const std::vector<comm::LinkSpeed>& links) {
  std::vector<comm::LinkSpeed> slow;
  const double least = kSlowPart * expected_speed(links);
  std::ranges::copy_if(links, std::back_inserter(slow),
                       [least](const comm::LinkSpeed& link) { return link.bytes_per_s < least; });
  return slow;
}

std::vector<Finding> judge_links(const std::vector<comm::LinkSpeed>& links,
                                 const std::vector<std::string>& hosts) {
  const auto slow = slow_links(links);
  const auto expected = speed_in_words(expected_speed(links));
  if (slow.empty()) {
    const auto slowest = std::ranges::min_element(links, {}, &comm::LinkSpeed::bytes_per_s);
    return {good("links", fmt::format("{} in the median, {} at least", expected,
                                      speed_in_words(slowest->bytes_per_s)))};
  }
  std::vector<std::string> named;
  std::map<int, int> involved;
  for (const auto& link : slow) {
    named.push_back(fmt::format("{} -> {} {}", hosts[static_cast<std::size_t>(link.from)],
                                hosts[static_cast<std::size_t>(link.to)], speed_in_words(link.bytes_per_s)));
    ++involved[link.from];
    ++involved[link.to];
  }
  const auto worst = std::ranges::max_element(involved, {}, [](const auto& entry) { return entry.second; });
  const bool one_node = slow.size() > 1 && worst->second == static_cast<int>(slow.size());
  constexpr std::size_t kMostNamed = 4;
  const std::size_t left = named.size() - std::min(named.size(), kMostNamed);
  named.resize(named.size() - left);
  return {problem(
      "links",
      fmt::format("{}{}, the median is {}", fmt::join(named, ", "),
                  left > 0 ? fmt::format(" and {} more", left) : "", expected),
      one_node ? fmt::format("look at the cable, port and speed (ethtool) of {}, or leave that node out",
                             hosts[static_cast<std::size_t>(worst->first)])
               : "look at the cables and switch ports between them, or leave one of the nodes out")};
}

}  // namespace dtrain::doctor
