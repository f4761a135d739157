#include "comm/survey/measurement.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "comm/group_arguments.hpp"
#include "core/clock.hpp"
#include "core/median.hpp"

namespace dtrain::comm {
namespace {

constexpr std::int64_t kMostOperations = 1000;  // in a turn

struct Contender {
  std::string operation;
  std::string algorithm;
  std::function<void()> run;  ///< One operation, until it is done.
};

/// The slowest rank's value, the same on all.
double slowest(Group& group, double seconds) {
  std::array<double, 1> value = {seconds};
  group.all_reduce(Buffer::of(std::span<double>(value)), ReduceOp::max, Algorithm::tree).wait();
  return value[0];
}

double time_of(Group& group, const Contender& contender, std::int64_t operations) {
  group.barrier().wait();
  const double start_s = steady_s();
  for (std::int64_t i = 0; i < operations; ++i) contender.run();
  return slowest(group, steady_s() - start_s) / static_cast<double>(operations);
}

std::vector<Measurement> compare(Group& group, const std::vector<Contender>& contenders, std::size_t bytes,
                                 const MeasurementPlan& plan) {
  std::vector<std::vector<double>> times(contenders.size());
  std::vector<std::int64_t> operations;
  for (const Contender& contender : contenders) {
    contender.run();  // the first makes connections
    const double estimate_s = time_of(group, contender, 1);
    operations.push_back(
        std::clamp<std::int64_t>(std::llround(plan.turn_s / estimate_s), 1, kMostOperations));
  }
  for (int round = 0; round < plan.rounds; ++round) {
    for (std::size_t c = 0; c < contenders.size(); ++c) {
      times[c].push_back(time_of(group, contenders[c], operations[c]));
    }
  }
  std::vector<Measurement> measured;
  for (std::size_t c = 0; c < contenders.size(); ++c) {
    const auto [least, greatest] = std::ranges::minmax(times[c]);
    measured.push_back({.group = group.name(),
                        .operation = contenders[c].operation,
                        .algorithm = contenders[c].algorithm,
                        .ranks = group.size(),
                        .bytes = bytes,
                        .median_s = median(times[c]),
                        .least_s = least,
                        .greatest_s = greatest});
  }
  return measured;
}

void append(std::vector<Measurement>& all, const std::vector<Measurement>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

/// Elements of about so many bytes, as many for each rank.
std::size_t even_count(std::size_t bytes, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return bytes / sizeof(float) / n * n;
}

/// Between buffers of as many elements, a multiple of the group's size. Borrows the group.
std::vector<Contender> collectives(Group& group, const Buffer& everything, const Buffer& received) {
  const Buffer part = parts_of(received, group.size()).front();
  return {
      {.operation = "reduce_scatter",
       .algorithm = {},
       .run = [&group, everything, part] { group.reduce_scatter(everything, part, ReduceOp::sum).wait(); }},
      {.operation = "all_gather",
       .algorithm = {},
       .run = [&group, everything, part] { group.all_gather(part, everything).wait(); }},
      {.operation = "all_to_all",
       .algorithm = {},
       .run = [&group, everything, received] { group.all_to_all(everything, received).wait(); }},
      {.operation = "broadcast", .algorithm = {}, .run = [&group, everything] {
         group.broadcast(everything, 0).wait();
       }}};
}

}  // namespace

double Measurement::bus_bytes_per_s() const {
  const double n = ranks;
  double factor = 1;
  if (operation == "all_reduce") factor = 2 * (n - 1) / n;
  if (operation == "reduce_scatter" || operation == "all_gather" || operation == "all_to_all")
    factor = (n - 1) / n;
  return factor * algorithm_bytes_per_s();
}

std::vector<Measurement> measure_all_reduce(Group& group, const MeasurementPlan& plan,
                                            const std::vector<Algorithm>& algorithms) {
  std::vector<Measurement> all;
  for (const std::size_t bytes : plan.sizes) {
    const auto memory = group.allocate(bytes);
    const Buffer values = {memory->data(), bytes / sizeof(float), DataType::float32};
    std::vector<Contender> contenders;
    for (const Algorithm algorithm : algorithms) {
      if (algorithm == Algorithm::tree && bytes > plan.largest_tree_bytes) continue;
      contenders.push_back({.operation = "all_reduce",
                            .algorithm = std::string(name_of(algorithm)),
                            .run = [&group, values, algorithm] {
                              group.all_reduce(values, ReduceOp::sum, algorithm).wait();
                            }});
    }
    append(all, compare(group, contenders, bytes, plan));
    group.barrier().wait();  // no rank frees what another still reads
  }
  return all;
}

std::vector<Measurement> measure_collectives(Group& group, const MeasurementPlan& plan) {
  std::vector<Measurement> all;
  const int n = group.size();
  const int me = group.rank();
  for (const std::size_t bytes : plan.sizes) {
    std::vector<float> whole(even_count(bytes, n));
    std::vector<float> other(whole.size());
    if (whole.empty()) continue;
    const Buffer everything = Buffer::of(std::span<float>(whole));
    const Buffer received = Buffer::of(std::span<float>(other));
    auto contenders = collectives(group, everything, received);
    if (n > 1) {
      contenders.push_back({.operation = "send_receive", .algorithm = {}, .run = [&] {
                              const Handle sent = group.send(everything, (me + 1) % n);
                              group.receive(received, (me + n - 1) % n).wait();
                              sent.wait();
                            }});
    }
    append(all, compare(group, contenders, everything.bytes(), plan));
  }
  return all;
}

std::vector<Measurement> measure_on_device(Group& group, const MeasurementPlan& plan) {
  std::vector<Measurement> all;
  if (group.on_device() == nullptr) return all;
  Group& devices = *group.on_device();
  for (const std::size_t bytes : plan.sizes) {
    const std::size_t count = even_count(bytes, group.size());
    if (count == 0) continue;
    const auto whole = devices.allocate(count * sizeof(float));
    const auto other = devices.allocate(count * sizeof(float));
    const Buffer everything = {whole->data(), count, DataType::float32};
    auto contenders = collectives(devices, everything, {other->data(), count, DataType::float32});
    contenders.insert(contenders.begin(), {.operation = "all_reduce", .algorithm = {}, .run = [&] {
                                             devices.all_reduce(everything, ReduceOp::sum).wait();
                                           }});
    auto measured = compare(group, contenders, everything.bytes(), plan);
    for (auto& one : measured) one.group = devices.name();
    append(all, measured);
  }
  return all;
}

}  // namespace dtrain::comm
