#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dtrain::data {

/// Which samples of an original split a staged split takes, ascending.
struct SplitChoice {
  std::string from;
  std::vector<std::int64_t> ids;
};

/// How the splits that an original lacks are made. Validation::none: a missing validation split stays
/// missing.
enum class Validation { set_aside, none };
struct SplitRule {
  std::uint64_t seed = 1;
  Validation validation = Validation::set_aside;
};

/// A tenth of `n`, rounded to the nearest.
constexpr std::int64_t tenth_of(std::int64_t n) { return (n + 5) / 10; }

/// The staged splits of an original: what is there is kept; a missing validation split is a stratified tenth
/// of train, a missing test split another. A pure function of its arguments. `samples`: of each original
/// split (train among them). `strata`: the class of each sample of train, or empty when there is nothing to
/// stratify by. Each stratum gives its tenth rounded down, and those with the largest remainders one more, so
/// that the sum is tenth_of(n). The last sample of a stratum stays in train unless the tenths cannot be
/// filled otherwise.
std::map<std::string, SplitChoice> plan_splits(const std::map<std::string, std::int64_t>& samples,
                                               const std::vector<std::int64_t>& strata,
                                               const SplitRule& rule);

/// The original splits as they are: the blocks of running text stay together.
std::map<std::string, SplitChoice> keep_splits(const std::map<std::string, std::int64_t>& samples);

}  // namespace dtrain::data
