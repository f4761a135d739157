#include "data/import/split_plan.hpp"

#include <algorithm>
#include <numeric>

#include "data/sampler.hpp"

namespace dtrain::data {
namespace {

/// The samples of each stratum, shuffled.
std::vector<std::vector<std::int64_t>> shuffled_strata(std::int64_t samples,
                                                       const std::vector<std::int64_t>& strata,
                                                       std::uint64_t seed) {
  std::map<std::int64_t, std::vector<std::int64_t>> members;
  for (std::int64_t id = 0; id < samples; ++id) members[strata.empty() ? 0 : strata[id]].push_back(id);
  std::vector<std::vector<std::int64_t>> shuffled;
  for (const auto& [stratum, ids] : members) {
    // Negative epochs: no epoch of training draws the same order.
    const auto order =
        epoch_order(static_cast<std::int64_t>(ids.size()), Order::shuffled, seed, -1 - stratum);
    std::vector<std::int64_t>& mixed = shuffled.emplace_back();
    for (const std::int64_t position : order) mixed.push_back(ids[position]);
  }
  return shuffled;
}

/// How many samples each stratum gives to each of `splits` tenths: by split, then by stratum. The last sample
/// of a stratum stays in train unless the tenths cannot be filled otherwise.
std::vector<std::vector<std::int64_t>> shares(const std::vector<std::vector<std::int64_t>>& strata,
                                              std::int64_t samples, std::size_t splits) {
  std::vector<std::int64_t> share;
  std::vector<std::int64_t> left;
  std::vector<std::size_t> by_remainder(strata.size());
  std::iota(by_remainder.begin(), by_remainder.end(), std::size_t{0});
  for (const auto& ids : strata) {
    share.push_back(std::ssize(ids) / 10);
    left.push_back(std::ssize(ids) - static_cast<std::int64_t>(splits) * share.back());
  }
  std::stable_sort(by_remainder.begin(), by_remainder.end(), [&](std::size_t a, std::size_t b) {
    return strata[a].size() % 10 > strata[b].size() % 10;
  });
  std::vector<std::vector<std::int64_t>> all(splits, share);
  for (const std::int64_t kept : {1, 0})
    for (auto& of_split : all) {
      std::int64_t missing =
          tenth_of(samples) - std::accumulate(of_split.begin(), of_split.end(), std::int64_t{0});
      for (bool given = true; missing > 0 && given;) {
        given = false;
        for (const std::size_t stratum : by_remainder) {
          if (missing == 0 || left[stratum] <= kept) continue;
          ++of_split[stratum];
          --left[stratum];
          --missing;
          given = true;
        }
      }
    }
  return all;
}

}  // namespace

std::map<std::string, SplitChoice> keep_splits(const std::map<std::string, std::int64_t>& samples) {
  std::map<std::string, SplitChoice> plan;
  for (const auto& [split, count] : samples) {
    SplitChoice& choice = plan[split];
    choice.from = split;
    choice.ids.resize(static_cast<std::size_t>(count));
    std::iota(choice.ids.begin(), choice.ids.end(), std::int64_t{0});
  }
  return plan;
}

std::map<std::string, SplitChoice> plan_splits(const std::map<std::string, std::int64_t>& samples,
                                               const std::vector<std::int64_t>& strata,
                                               const SplitRule& rule) {
  std::map<std::string, SplitChoice> plan = keep_splits(samples);
  std::vector<std::string> missing;
  for (const char* split : {"validation", "test"})
    if (!samples.contains(split)) missing.emplace_back(split);
  if (rule.validation == Validation::none) std::erase(missing, "validation");
  if (missing.empty()) return plan;

  const std::int64_t count = samples.at("train");
  const auto pools = shuffled_strata(count, strata, rule.seed);
  const auto share = shares(pools, count, missing.size());
  for (const std::string& split : missing) plan[split].from = "train";
  plan["train"].ids.clear();
  for (std::size_t stratum = 0; stratum < pools.size(); ++stratum) {
    auto next = pools[stratum].begin();
    for (std::size_t split = 0; split < missing.size(); ++split) {
      auto& ids = plan[missing[split]].ids;
      ids.insert(ids.end(), next, next + share[split][stratum]);
      next += share[split][stratum];
    }
    plan["train"].ids.insert(plan["train"].ids.end(), next, pools[stratum].end());
  }
  for (auto& [split, choice] : plan) std::sort(choice.ids.begin(), choice.ids.end());
  return plan;
}

}  // namespace dtrain::data
