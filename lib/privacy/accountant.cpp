#include "privacy/accountant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "privacy/renyi.hpp"

namespace dtrain::privacy {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr int kResolution = 64;
// One step with less may lose 660 and more: that is no privacy, and e to the power of it is soon no number.
constexpr double kLeastNoise = 0.036;
constexpr std::int64_t kMostPoints = 1 << 21;  // 32 MiB of complex numbers

std::vector<Repeated> discretised(const Mechanisms& mechanisms, Direction direction, Bound bound,
                                  double grid) {
  std::vector<Repeated> parts;
  for (const auto& mechanism : mechanisms) {
    const auto times = mechanism.sampling == Sampling::poisson ? mechanism.steps : mechanism.epochs();
    parts.push_back({discretise(mechanism, direction, bound, grid), times});
  }
  return parts;
}

double standard_deviation(const LossDistribution& loss) {
  double mass = 0;
  double mean = 0;
  double squares = 0;
  for (std::size_t i = 0; i < loss.mass.size(); ++i) {
    const double at = static_cast<double>(loss.lowest + static_cast<std::int64_t>(i)) * loss.grid;
    mass += loss.mass[i];
    mean += loss.mass[i] * at;
    squares += loss.mass[i] * at * at;
  }
  return std::sqrt(std::max(0.0, squares / mass - mean * mean / (mass * mass)));
}

/// The finest grid for one step, so that it takes at most some seconds: kMostPointsOfStep points, and less
/// where the noise is so little that the losses are large. Any grid bounds epsilon from its side: a coarser
/// one less tightly.
double finest_grid(const SampledGaussian& mechanism, Direction direction) {
  constexpr double kMostPointsOfStep = 1 << 22;
  constexpr double kLargeRange = 20;  // as of noise of 0.5, and of less with usual rates
  const double range = range_of(mechanism, direction);
  return range * std::max(1.0, range / kLargeRange) / kMostPointsOfStep;
}

/// What one step's loss spreads, from ever finer grids. Where nearly all losses are one value, it is less
/// than what any grid shows.
double spread_of(const SampledGaussian& mechanism, Direction direction) {
  double spread = kUnbounded;
  const double finest = std::max(1e-7, finest_grid(mechanism, direction));
  for (double grid = 0.05; grid > finest; grid /= 8) {
    spread = standard_deviation(discretise(mechanism, direction, Bound::upper, grid));
    if (spread > 4 * grid) break;
  }
  return spread;
}

/// A grid on which the sum of all losses has at most kMostPoints.
double grid_for(const Mechanisms& mechanisms, Direction direction, double tail, int resolution) {
  constexpr double kCoarsest = 5e-3;
  double grid = kCoarsest;
  double finest = 0;
  for (const auto& mechanism : mechanisms) {
    grid = std::min(grid, spread_of(mechanism, direction) / resolution);
    finest = std::max(finest, finest_grid(mechanism, direction));
  }
  grid = std::max(grid, finest);
  const double coarse = std::max(4 * grid, 1e-5);
  const auto points = points_of(discretised(mechanisms, direction, Bound::upper, coarse), tail);
  const double least = static_cast<double>(points) * coarse / static_cast<double>(kMostPoints);
  return std::max(grid, least);
}

double loss_epsilon_of(const Mechanisms& mechanisms, double delta, Direction direction, Bound bound,
                       int resolution) {
  const double tail = 1e-6 * delta;
  const double grid = grid_for(mechanisms, direction, tail, resolution);
  return compose(discretised(mechanisms, direction, bound, grid), tail).epsilon(delta, bound);
}

/// Those that count: without steps nothing is released.
Mechanisms with_steps(const Mechanisms& mechanisms) {
  Mechanisms all;
  for (const auto& mechanism : mechanisms) {
    mechanism.validate();
    if (mechanism.steps > 0) all.push_back(mechanism);
  }
  return all;
}

}  // namespace

Accounting parse_accounting(const std::string& text) {
  if (text == "rdp") return Accounting::renyi;
  if (text == "pld") return Accounting::loss;
  throw usage_error(fmt::format("'{}' is no accountant", text), "--dp-accountant", "use rdp or pld");
}

std::string name_of(Accounting accounting) { return accounting == Accounting::renyi ? "rdp" : "pld"; }

double loss_epsilon(const Mechanisms& mechanisms, double delta, Bound bound, int resolution) {
  require_delta(delta);
  const auto all = with_steps(mechanisms);
  if (all.empty()) return 0;
  const double least = std::ranges::min(all, {}, &SampledGaussian::noise_multiplier).noise_multiplier;
  if (least < kLeastNoise && (bound == Bound::upper || least == 0)) return kUnbounded;
  if (least < kLeastNoise) return 0;
  const bool once =
      std::ranges::any_of(all, [](const auto& one) { return one.sampling == Sampling::once_an_epoch; });
  if (once && bound == Bound::lower) return 0;
  return std::max(loss_epsilon_of(all, delta, Direction::remove, bound, resolution),
                  loss_epsilon_of(all, delta, Direction::add, bound, resolution));
}

double epsilon_of(const Mechanisms& mechanisms, double delta, Accounting accounting) {
  if (accounting == Accounting::renyi) return renyi_epsilon(mechanisms, delta);
  const double epsilon = loss_epsilon(mechanisms, delta, Bound::upper, kResolution);
  const bool once = std::ranges::any_of(
      mechanisms, [](const auto& one) { return one.sampling == Sampling::once_an_epoch; });
  return once ? std::min(epsilon, renyi_epsilon(mechanisms, delta)) : epsilon;
}

double noise_for(double epsilon, double delta, const SampledGaussian& mechanism, Accounting accounting) {
  constexpr double kMostNoise = 1e4;
  constexpr double kAccuracy = 1e-4;  // relative
  require_delta(delta);
  require(epsilon > 0 && epsilon <= kMostEpsilon, fmt::format("{} is no epsilon to reach", epsilon),
          {.subject = "--target-epsilon",
           .advice = fmt::format("give a number above 0, such as 3, and at most {}, which protects nothing",
                                 kMostEpsilon),
           .code = ExitCode::usage});
  const auto keeps = [&](double noise, int resolution) {
    auto with_noise = mechanism;
    with_noise.noise_multiplier = noise;
    return accounting == Accounting::loss && mechanism.sampling == Sampling::poisson
               ? loss_epsilon({with_noise}, delta, Bound::upper, resolution) <= epsilon
               : epsilon_of({with_noise}, delta, accounting) <= epsilon;
  };
  if (mechanism.steps == 0) return 0;
  constexpr int kCoarse = 8;
  double high = 1;
  while (!keeps(high, kCoarse)) {
    high *= 2;
    require(high <= kMostNoise,
            fmt::format("{} at delta {} cannot be reached: noise of {} times the clip norm is not enough",
                        epsilon, delta, kMostNoise),
            {.subject = "--target-epsilon",
             .advice = "allow a larger epsilon or delta, or take fewer steps or fewer records in a step",
             .code = ExitCode::usage});
  }
  double low = high / 2;
  while (low > 1e-3 && keeps(low, kCoarse)) {
    high = low;
    low /= 2;
  }
  const auto bisect = [&](int resolution, double accuracy) {
    while (high - low > accuracy * high) {
      const double middle = std::sqrt(low * high);
      (keeps(middle, resolution) ? high : low) = middle;
    }
  };
  bisect(kCoarse, 10 * kAccuracy);
  while (!keeps(high, kResolution)) {  // the finer grid decides
    low = high;
    high *= 1 + 10 * kAccuracy;
  }
  low = std::min(low, high / (1 + 10 * kAccuracy));
  while (low > 1e-3 && keeps(low, kResolution)) {
    high = low;
    low /= 1 + 10 * kAccuracy;
  }
  bisect(kResolution, kAccuracy);
  return high;
}

std::int64_t steps_within(double epsilon, double delta, const Mechanisms& before,
                          const SampledGaussian& mechanism, Accounting accounting, std::int64_t most) {
  const auto keeps = [&](std::int64_t steps) {
    auto all = before;
    const auto place = std::ranges::find_if(all, [&](const auto& one) {
      return one.sampling == mechanism.sampling && one.noise_multiplier == mechanism.noise_multiplier &&
             one.rate == mechanism.rate;
    });
    if (place != all.end()) {
      place->steps += steps;
    } else {
      all.push_back(mechanism);
      all.back().steps = steps;
    }
    return epsilon_of(all, delta, accounting) <= epsilon;
  };
  if (keeps(most)) return most;
  std::int64_t low = 0;
  std::int64_t high = most;
  while (high - low > 1) {
    const auto middle = low + (high - low) / 2;
    (keeps(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace dtrain::privacy
