#include "privacy/loss_distribution.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <limits>

#include "privacy/fourier.hpp"
#include "privacy/log_domain.hpp"

namespace dtrain::privacy {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();
constexpr double kReach = 10;  // standard deviations of noise that are looked at; beyond are 1e-23

/// Probabilities of a set of outcomes under P and under Q.
struct Masses {
  double p = 0;
  double q = 0;
};

/// The pair of distributions that dominates one step.
class Pair {
 public:
  Pair(const SampledGaussian& step, Direction direction)
      : noise_(step.noise_multiplier),
        rate_(step.sampling == Sampling::poisson ? step.rate : 1),
        removes_(direction == Direction::remove) {}

  /// The loss at the outcomes that are kReach standard deviations away, in ascending order.
  std::pair<double, double> range() const {
    const double low = mixture_loss(-kReach * noise_);
    const double high = mixture_loss(1 + kReach * noise_);
    return removes_ ? std::pair{low, high} : std::pair{-high, -low};
  }

  /// Outcomes whose loss is in (low, high], with relative accuracy also where that is little.
  Masses between(double low, double high) const {
    const double from = removes_ ? outcome_of(low) : outcome_of(-high);
    const double to = removes_ ? outcome_of(high) : outcome_of(-low);
    const double plain = normal_between(from, to);
    const double mixed = rate_ == 1 ? normal_between(from - 1, to - 1)
                                    : (1 - rate_) * plain + rate_ * normal_between(from - 1, to - 1);
    return removes_ ? Masses{mixed, plain} : Masses{plain, mixed};
  }

 private:
  /// log of the mixture's density over the plain one's at outcome x.
  double mixture_loss(double x) const {
    const double exponent = (2 * x - 1) / (2 * noise_ * noise_);
    return rate_ == 1 ? exponent : log_add(std::log1p(-rate_), std::log(rate_) + exponent);
  }

  /// The outcome whose mixture_loss() is `loss`; -infinity where all are above.
  double outcome_of(double loss) const {
    if (std::isinf(loss)) return loss;
    const double variance = noise_ * noise_;
    if (rate_ == 1) return variance * loss + 0.5;
    const double grown = std::expm1(loss) + rate_;  // e^loss - (1 - rate)
    if (grown <= 0) return -kEndless;
    const double log_grown = loss > 30 ? loss + std::log1p(-(1 - rate_) * std::exp(-loss)) : std::log(grown);
    return variance * (log_grown - std::log(rate_)) + 0.5;
  }

  double normal_between(double from, double to) const {
    if (from >= to) return 0;
    const double low = from / noise_;
    const double high = to / noise_;
    return std::max(
        0.0, low > 0 ? normal_above(low) - normal_above(high) : normal_below(high) - normal_below(low));
  }

  double noise_;
  double rate_;
  bool removes_;
};

/// Splits the mass of each cell of the grid between its ends: a + b = p, a e^-l + b e^-(l + grid) = q.
LossDistribution split_up(const Pair& pair, double grid) {
  const auto [low, high] = pair.range();
  const auto first = static_cast<std::int64_t>(std::floor(low / grid));
  const auto last = static_cast<std::int64_t>(std::ceil(high / grid));
  LossDistribution all{.grid = grid, .lowest = first, .mass = {}};
  all.mass.assign(static_cast<std::size_t>(last - first + 1), 0.0);
  all.mass[0] = pair.between(-kEndless, static_cast<double>(first) * grid).p;
  all.infinity = pair.between(static_cast<double>(last) * grid, kEndless).p;
  const double share = -std::expm1(-grid);
  for (auto i = first; i < last; ++i) {
    const double from = static_cast<double>(i) * grid;
    const auto cell = pair.between(from, static_cast<double>(i + 1) * grid);
    const double scaled =
        cell.q > 0 ? std::exp(from + std::log(cell.q)) : 0.0;  // e^from alone may be infinite
    const double upper = std::clamp((cell.p - scaled) / share, 0.0, cell.p);
    const auto at = static_cast<std::size_t>(i - first);
    all.mass[at] += cell.p - upper;
    all.mass[at + 1] += upper;
  }
  return all;
}

/// Merges losses from `begin` on into a run whose P over Q is e^loss: where it ends; infinity where none
/// does.
double end_of_run(const Pair& pair, double begin, double loss, double grid) {
  const double factor = std::exp(loss);
  const auto left = pair.between(begin, loss);
  const double wanted = factor * left.q - left.p;  // what is too much in Q, at least 0
  const auto gained = [&](double end) {
    const auto right = pair.between(loss, end);
    return right.p - factor * right.q - wanted;
  };
  double low = loss;
  double high = 2 * loss - begin;
  double below = -wanted;  // gained(low)
  double above = gained(high);
  for (int tries = 0; above < 0; ++tries) {
    if (tries == 8) return kEndless;
    low = high;
    below = above;
    high += grid;
    above = gained(high);
  }
  // Regula falsi in the square of the distance from the point, of which this is nearly linear; the end that
  // stays counts half (the Illinois rule).
  const auto squared = [&](double end) { return (end - loss) * (end - loss); };
  for (int i = 0; i < 60 && above > 0 && high - low > 1e-7 * grid; ++i) {
    const double square = squared(low) - below * (squared(high) - squared(low)) / (above - below);
    const double middle = std::clamp(loss + std::sqrt(std::max(square, 0.0)), low, high);
    const double value = gained(middle);
    if (value < 0) {
      low = middle;
      below = value;
      above /= 2;
    } else {
      const bool stays = middle >= high;
      high = middle;
      above = value;
      below /= 2;
      if (stays) break;
    }
    if (std::abs(value) < 1e-9 * wanted && value >= 0) break;  // of what is little already
  }
  return high;  // P over Q is at least the grid point's
}

LossDistribution merged(const Pair& pair, double grid) {
  const auto [low, high] = pair.range();
  const auto first = static_cast<std::int64_t>(std::floor(low / grid));
  const auto last = static_cast<std::int64_t>(std::ceil(high / grid));
  LossDistribution all{.grid = grid, .lowest = first, .mass = {}};
  all.mass.assign(static_cast<std::size_t>(last - first + 1), 0.0);
  double begin = (static_cast<double>(first) - 0.5) * grid;
  for (auto i = first; i <= last; ++i) {
    const double loss = static_cast<double>(i) * grid;
    if (begin >= loss) continue;  // the run before reaches beyond
    const double end = end_of_run(pair, begin, loss, grid);
    if (end == kEndless) {  // nothing above weighs up what begins here
      begin = loss;
      continue;
    }
    const auto run = pair.between(begin, end);
    // P over Q exceeds the point by what the search leaves: that much of P is left out.
    all.mass[static_cast<std::size_t>(i - first)] = std::min(run.p, run.q * std::exp(loss));
    begin = end;
  }
  return all;
}

/// A bound of the log of the sum of mass e^(t loss), from few bins: the mass of each is split between its
/// ends such that the mean stays. e^(t loss) being convex, that is no less.
class Moments {
 public:
  explicit Moments(const LossDistribution& loss) {
    constexpr std::size_t kBins = 8192;
    const auto n = loss.mass.size();
    const auto each = std::max<std::size_t>(1, n / kBins);
    const auto loss_at = [&](std::size_t i) {
      return static_cast<double>(loss.lowest + static_cast<std::int64_t>(i)) * loss.grid;
    };
    std::vector<double> ends(n / each + 2, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const double part = static_cast<double>(i % each) / static_cast<double>(each);
      ends[i / each] += loss.mass[i] * (1 - part);
      ends[i / each + 1] += loss.mass[i] * part;
    }
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i] <= 0) continue;
      logs_.push_back(std::log(ends[i]));
      losses_.push_back(loss_at(i * each));
    }
  }

  double log_moment(double t) const {
    double most = kLogZero;
    for (std::size_t i = 0; i < logs_.size(); ++i) most = std::max(most, logs_[i] + t * losses_[i]);
    if (most == kLogZero) return kLogZero;
    double sum = 0;
    for (std::size_t i = 0; i < logs_.size(); ++i) sum += std::exp(logs_[i] + t * losses_[i] - most);
    return most + std::log(sum);
  }

 private:
  std::vector<double> logs_;
  std::vector<double> losses_;
};

struct Window {
  std::int64_t lowest = 0;
  std::int64_t points = 1;
};

/// Where all but `tail` of the sum is, on each side: of P(S >= s) <= e^(K(t) - t s) the best t.
Window window_of(const std::vector<Repeated>& parts, double tail) {
  std::vector<Moments> moments;
  for (const auto& part : parts) moments.emplace_back(part.loss);
  const auto all = [&](double t) {
    double sum = 0;
    for (std::size_t i = 0; i < parts.size(); ++i)
      sum += static_cast<double>(parts[i].times) * moments[i].log_moment(t);
    return sum;
  };
  double high = kEndless;
  double low = -kEndless;
  for (double t = 1.0 / 64; t < 2000; t *= 1.4) {
    high = std::min(high, (all(t) - std::log(tail)) / t);
    low = std::max(low, -(all(-t) - std::log(tail)) / t);
  }
  const double grid = parts.front().loss.grid;
  std::int64_t least = 0;
  std::int64_t most = 0;
  for (const auto& part : parts) {
    least += part.times * part.loss.lowest;
    most += part.times * (part.loss.lowest + static_cast<std::int64_t>(part.loss.mass.size()) - 1);
  }
  const double from = std::max(std::floor(low / grid), static_cast<double>(least));
  const double to = std::min(std::ceil(high / grid), static_cast<double>(most));
  if (!(from <= to)) return {.lowest = least, .points = 1};
  return {.lowest = static_cast<std::int64_t>(from), .points = static_cast<std::int64_t>(to - from) + 1};
}

std::int64_t wrapped(std::int64_t at, std::int64_t n) { return ((at % n) + n) % n; }

std::vector<std::complex<double>> transformed(const LossDistribution& loss, std::int64_t n) {
  std::vector<std::complex<double>> all(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < loss.mass.size(); ++i) {
    all[static_cast<std::size_t>(wrapped(loss.lowest + static_cast<std::int64_t>(i), n))] += loss.mass[i];
  }
  fourier(all, Transform::forth);
  return all;
}

std::complex<double> raised(std::complex<double> base, std::int64_t times) {
  std::complex<double> all = 1;
  for (; times > 0; times /= 2) {
    if (times % 2 == 1)
      all = {all.real() * base.real() - all.imag() * base.imag(),
             all.real() * base.imag() + all.imag() * base.real()};
    base = {base.real() * base.real() - base.imag() * base.imag(), 2 * base.real() * base.imag()};
  }
  return all;
}

}  // namespace

LossDistribution discretise(const SampledGaussian& step, Direction direction, Bound bound, double grid) {
  const Pair pair(step, direction);
  return bound == Bound::upper ? split_up(pair, grid) : merged(pair, grid);
}

double range_of(const SampledGaussian& step, Direction direction) {
  const auto [low, high] = Pair(step, direction).range();
  return high - low;
}

std::int64_t points_of(const std::vector<Repeated>& parts, double tail) {
  return window_of(parts, tail).points;
}

Composition compose(const std::vector<Repeated>& parts, double tail) {
  const auto window = window_of(parts, tail);
  const auto n = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(window.points)));
  const double each = fourier_error(static_cast<std::size_t>(n));
  std::vector<std::complex<double>> product(static_cast<std::size_t>(n), 1.0);
  std::vector<double> sizes(product.size(), 0.0);   // log of the product's absolute values
  std::vector<double> bounds(product.size(), 0.0);  // the same, each factor wrong by as much as may be
  double finite = 0;                                // log of the probability of no infinite loss
  for (const auto& part : parts) {
    const auto factor = transformed(part.loss, n);
    const auto times = static_cast<double>(part.times);
    for (std::size_t f = 0; f < factor.size(); ++f) {
      const double size = std::abs(factor[f]);
      sizes[f] += times * std::log(size);
      bounds[f] += times * (std::log(size + each) + each);  // the second: of the power's own roundings
      product[f] *= raised(factor[f], part.times);
    }
    finite += times * std::log1p(-part.loss.infinity);
  }
  double squares = 0;
  double sum = 0;
  for (std::size_t f = 0; f < product.size(); ++f) {
    const double wrong = std::exp(bounds[f]) - std::exp(sizes[f]);
    squares += wrong * wrong;
    sum += std::abs(product[f]);
  }
  fourier(product, Transform::back);
  Composition all{.loss = {.grid = parts.front().loss.grid, .lowest = window.lowest, .mass = {}}};
  all.loss.mass.resize(product.size());
  for (std::size_t i = 0; i < product.size(); ++i) {
    const auto at = wrapped(window.lowest + static_cast<std::int64_t>(i), n);
    all.loss.mass[i] = std::max(0.0, product[static_cast<std::size_t>(at)].real());
  }
  all.loss.infinity = -std::expm1(finite);
  all.error = 2 * tail + std::sqrt(squares) + each * sum;  // by Cauchy and Schwarz over n elements
  return all;
}

double Composition::delta(double epsilon, Bound bound) const {
  double sum = loss.infinity;
  for (std::size_t i = loss.mass.size(); i-- > 0;) {
    const double above =
        static_cast<double>(loss.lowest + static_cast<std::int64_t>(i)) * loss.grid - epsilon;
    if (above <= 0) break;
    sum -= loss.mass[i] * std::expm1(-above);
  }
  return std::clamp(bound == Bound::upper ? sum + error : sum - error, 0.0, 1.0);
}

double Composition::epsilon(double delta_wanted, Bound bound) const {
  const double start = loss.infinity + (bound == Bound::upper ? error : -error);
  if (start > delta_wanted) return kEndless;
  double sum = start;  // the mass above a point, infinity included
  double beside = 0;   // of mass e^(point - loss) above it: delta at the point is sum - beside
  const double shrinks = std::exp(-loss.grid);
  const auto answer = [&](double point) {  // below the next point
    return std::max(0.0, point + std::log((sum - delta_wanted) / beside));
  };
  double point = 0;
  for (std::size_t i = loss.mass.size(); i-- > 0;) {
    point = static_cast<double>(loss.lowest + static_cast<std::int64_t>(i)) * loss.grid;
    if (point < 0) break;
    beside *= shrinks;
    if (sum - beside > delta_wanted) return answer(point);
    sum += loss.mass[i];
    beside += loss.mass[i];
  }
  if (point < 0) {
    beside *= shrinks;
    if (sum - beside > delta_wanted) return answer(point);
  }
  return sum - beside * std::exp(-point) <= delta_wanted ? 0 : answer(point);
}

}  // namespace dtrain::privacy
