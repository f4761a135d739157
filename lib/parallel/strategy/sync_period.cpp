#include "parallel/strategy/sync_period.hpp"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/parse_number.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kLongest = 1'000'000;  // steps

std::int64_t steps_in(const std::string& text) {
  const auto steps = parse_number<std::int64_t>(text);
  if (steps && *steps >= 1 && *steps <= kLongest) return *steps;
  throw usage_error(fmt::format("\"{}\" is not a number of steps", text), "--sync-period",
                    fmt::format("use adaptive, or a number from 1 to {}", kLongest));
}

}  // namespace

SyncPeriod::SyncPeriod(const std::string& text)
    : adapts_(text == "adaptive"), state_(at::zeros({kFields}, at::kDouble)) {
  number(kPeriod) = static_cast<double>(adapts_ ? kFirst : steps_in(text));
}

bool SyncPeriod::round_done(double loss, double weight, std::int64_t steps) {
  if (!adapts_ || !(weight > 0)) return false;
  if (number(kFirstLoss) <= 0) number(kFirstLoss) = loss / weight;
  number(kLoss) += loss;
  number(kWeight) += weight;
  number(kSteps) += static_cast<double>(steps);
  if (number(kSteps) < static_cast<double>(kInterval)) return false;
  const double before = number(kPeriod);
  const double share = number(kLoss) / number(kWeight) / number(kFirstLoss);
  const double wanted = std::ceil(static_cast<double>(kFirst) * std::sqrt(std::max(share, 0.0)));
  number(kPeriod) = std::max(1.0, wanted < before ? wanted : std::ceil(before / 2));
  number(kLoss) = number(kWeight) = number(kSteps) = 0;
  return number(kPeriod) != before;
}

}  // namespace dtrain::parallel
