#include "parallel/gradients/row_updates.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "core/slice.hpp"
#include "kernels/bag.hpp"
#include "optim/adam.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int32_t kNowhere = -1;
constexpr std::size_t kRowsOfBlock = 32;    // neighbours that one rank updates: enough to read ahead
constexpr std::int64_t kBlocksOfRank = 64;  // at least, where few rows have most uses

/// How much less an idle row moves in each further step: the first moment over the second's root.
double fading(const optim::OptimizerConfig& config) { return config.beta1 / std::sqrt(config.beta2); }

/// Steps until an idle row's movement is far below the precision of `type`.
std::int64_t steps_to_fade(const optim::OptimizerConfig& config, at::ScalarType type) {
  const double left = type == at::kDouble ? 0x1.0p-70 : 0x1.0p-30;
  if (config.beta1 == 0.0) return 1;
  return static_cast<std::int64_t>(std::ceil(std::log(left) / std::log(fading(config))));
}

}  // namespace

bool RowUpdates::supports(const optim::OptimizerConfig& config) {
  if (config.name == "sgd") return config.momentum == 0.0 && config.weight_decay == 0.0;
  const bool fades = config.beta1 < 0.99 && fading(config) < 0.99;  // else there were too much to make up for
  return fades && (config.name == "adamw" || config.weight_decay == 0.0);
}

RowUpdates::RowUpdates(const FlatParameters& parameters, const FlatParameters::Entry& entry,
                       comm::Group& group, const optim::Optimizer& optimizer,
                       const optim::OptimizerConfig& config, Copies copies, const RowLimits& limits)
    : parameter_(*entry.parameter),
      place_(*entry.parameter, factors_),
      group_(group),
      config_(config),
      copies_(copies),
      rows_(entry.parameter->value.size(0)),
      columns_(entry.parameter->value.size(1)),
      offset_(entry.offset),
      values_(parameters.values()),
      exchange_(group, limits, columns_, parameters.dtype()),
      slots_(static_cast<std::size_t>(rows_), kNowhere),
      uses_(static_cast<std::size_t>(rows_), 0),
      current_(static_cast<std::size_t>(rows_), 0),
      faded_(static_cast<std::size_t>(rows_), 0),
      touched_(static_cast<std::size_t>(rows_), 0),
      longest_idle_(steps_to_fade(config, parameters.dtype())),
      powers1_(static_cast<std::size_t>(longest_idle_) + 1, 1.0),
      powers2_(static_cast<std::size_t>(longest_idle_) + 1, 1.0) {
  require(supports(config), "this rule moves idle rows in a way that cannot be made up for",
          {.subject = "optimizer " + config.name});
  for (const auto& state : optimizer.state()) moments_.push_back(state.value);
  for (std::size_t k = 1; k < powers1_.size(); ++k) {
    powers1_[k] = powers1_[k - 1] * config.beta1;
    powers2_[k] = powers2_[k - 1] * std::sqrt(config.beta2);
  }
}

template <class T>
T* RowUpdates::row_at(const at::Tensor& flat, std::int32_t row) const {
  return static_cast<T*>(flat.data_ptr()) + offset_ + row * columns_;
}

/// Blocks of `rows`, which are ascending, each to the rank that has least to add up so far. Vocabularies are
/// ordered by frequency: of two halves one would have most to add up, the other most to make current.
std::vector<std::int32_t> RowUpdates::share_of(const std::vector<std::int32_t>& rows) const {
  if (copies_ == Copies::each) return rows;
  const auto load_of = [this](std::int32_t row) { return 1 + uses_[static_cast<std::size_t>(row)]; };
  std::int64_t total = 0;
  for (const std::int32_t row : rows) total += load_of(row);
  const std::int64_t largest = total / (kBlocksOfRank * group_.size());
  std::vector<std::int64_t> loads(static_cast<std::size_t>(group_.size()), 0);
  std::vector<std::int32_t> share;
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    std::int64_t load = 0;
    for (; end < rows.size() && end - begin < kRowsOfBlock && load <= largest; ++end)
      load += load_of(rows[end]);
    const auto least = std::ranges::min_element(loads);
    *least += load;
    if (least - loads.begin() == group_.rank())
      share.insert(share.end(), &rows[begin], &rows[begin] + (end - begin));
  }
  return share;
}

void RowUpdates::wait_for_all() {
  if (copies_ == Copies::one && group_.size() > 1) group_.barrier().wait();
}

void RowUpdates::begin_step(const std::vector<at::Tensor>& ids) {
  factors_.clear();
  exchange_.share_ids(ids);
  find_used_rows();
  mine_ = share_of(used_);
  as_double() ? make_current<double>(mine_) : make_current<float>(mine_);
  const auto now = steps_done();
  for (const std::int32_t row : used_) current_[static_cast<std::size_t>(row)] = now;
  wait_for_all();
}

void RowUpdates::find_used_rows() {
  for (const std::int32_t row : used_) uses_[static_cast<std::size_t>(row)] = 0;
  for (int rank = 0; rank < group_.size(); ++rank) {
    for (std::int64_t sample = 0; sample < exchange_.samples(rank); ++sample) {
      for (const std::int32_t id : exchange_.ids(rank, sample)) {
        if (id <= 0 || id >= rows_) {
          throw data_error("a token's id is outside the vocabulary", parameter_.name,
                           "stage the dataset again");
        }
        ++uses_[static_cast<std::size_t>(id)];
      }
    }
  }
  used_.clear();
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(rows_); ++row) {
    if (uses_[static_cast<std::size_t>(row)] != 0) used_.push_back(row);
  }
}

/// Of the steps after the one `row` is current with.
void RowUpdates::list_idle_steps(std::int32_t row) {
  const auto at = static_cast<std::size_t>(row);
  const auto last = steps_done();
  idle_.clear();
  if (touched_[at] == 0 && config_.name == "adam") return;  // no moments yet: nothing moves it
  for (std::int64_t step = current_[at] + 1; step <= last; ++step) {
    const Done& done = done_[static_cast<std::size_t>(step - before_first_ - 1)];
    const auto since = static_cast<std::size_t>(step - faded_[at]);
    const bool faded = step - touched_[at] > longest_idle_;
    if (faded && config_.name == "adam") break;
    idle_.push_back({.moved = faded ? 0.0 : done.moved * powers1_[since],
                     .spread = faded ? 1.0 : done.spread * powers2_[since],
                     .shrink = done.shrink});
  }
}

template <class T>
void RowUpdates::make_current(const std::vector<std::int32_t>& rows) {
  if (moments_.empty()) return;  // sgd leaves idle rows alone
  const auto last = steps_done();
  for (const std::int32_t r : rows) {
    const auto missed = last - current_[static_cast<std::size_t>(r)];
    if (missed == 0) continue;
    list_idle_steps(r);
    kernels::adam_idle(row_at<T>(values_, r), row_at<const T>(moments_[0], r),
                       row_at<const T>(moments_[1], r), static_cast<std::size_t>(columns_), idle_,
                       config_.eps);
  }
}

RowUpdates::Fading RowUpdates::fading_of(std::int32_t row) const {
  const auto last = steps_done();
  const auto steps = last - faded_[static_cast<std::size_t>(row)];
  if (steps == 0) return {};
  if (steps <= longest_idle_) {
    const auto k = static_cast<std::size_t>(steps);
    return {powers1_[k], powers2_[k] * powers2_[k]};
  }
  const auto exponent = static_cast<double>(steps);
  return {std::pow(config_.beta1, exponent), std::pow(config_.beta2, exponent)};
}

template <class T>
void RowUpdates::fade(const std::vector<std::int32_t>& rows) {
  if (moments_.empty()) return;
  for (const std::int32_t r : rows) {
    const auto [first, second] = fading_of(r);
    if (first == 1.0 && second == 1.0) continue;
    kernels::adam_fade(row_at<T>(moments_[0], r), row_at<T>(moments_[1], r),
                       static_cast<std::size_t>(columns_), first, second);
  }
}

void RowUpdates::finish() {
  exchange_.share_gradients(factors_);
  factors_.clear();
  if (as_double()) {
    add_up<double>();
  } else {
    add_up<float>();
  }
}

/// Sorts the samples by row (counting), then adds each row's up in the order of the samples.
template <class T>
void RowUpdates::add_up() {
  const auto count = mine_.size();
  std::vector<std::size_t> ends(count + 1, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const auto row = static_cast<std::size_t>(mine_[i]);
    slots_[row] = static_cast<std::int32_t>(i);
    ends[i + 1] = ends[i] + static_cast<std::size_t>(uses_[row]);
  }
  std::vector<const T*> uses(ends.back());
  std::vector<std::size_t> next(ends.begin(), ends.end() - 1);
  for (int rank = 0; rank < group_.size(); ++rank) {
    for (std::int64_t sample = 0; sample < exchange_.samples(rank); ++sample) {
      const T* const gradient = exchange_.gradient<T>(rank, sample);
      for (const std::int32_t id : exchange_.ids(rank, sample)) {
        const std::int32_t slot = slots_[static_cast<std::size_t>(id)];
        if (slot != kNowhere) uses[next[static_cast<std::size_t>(slot)]++] = gradient;
      }
    }
  }
  const auto added_up =
      std::ranges::count_if(mine_, [this](auto row) { return uses_[static_cast<std::size_t>(row)] > 1; });
  if (!gradient_.defined() || gradient_.size(0) < added_up) {
    gradient_.reset();  // before the larger one is there
    gradient_ = at::empty({added_up, columns_}, values_.scalar_type());
  }
  // With a copy on each rank all add up all rows: each vouches for some.
  const auto all = static_cast<std::int64_t>(count);
  const Range vouched = copies_ == Copies::one ? Range{0, all} : part_of(all, group_.rank(), group_.size());
  const auto columns = static_cast<std::size_t>(columns_);
  T* sum = gradient_.data_ptr<T>();
  sums_.resize(count);
  squares_ = {};
  for (std::size_t i = 0; i < count; ++i) {
    slots_[static_cast<std::size_t>(mine_[i])] = kNowhere;
    sums_[i] = uses[ends[i]];
    if (ends[i + 1] - ends[i] > 1) {
      kernels::sum_rows(sum, {uses.data() + ends[i], ends[i + 1] - ends[i]}, columns);
      sums_[i] = sum;
      sum += columns;
    }
    const auto place = static_cast<std::int64_t>(i);
    if (place < vouched.begin || place >= vouched.end) continue;
    const auto squares = kernels::sum_of_squares_and_nonfinite(static_cast<const T*>(sums_[i]), columns);
    squares_.sum += squares.sum;
    squares_.non_finite += squares.non_finite;
  }
}

void RowUpdates::update(double scale, double learning_rate, std::int64_t step) {
  if (done_.empty()) {
    before_first_ = step - 1;
    std::ranges::fill(current_, before_first_);
    std::ranges::fill(faded_, before_first_);
    // Restored moments, if any, are those of the step before: no row may count as untouched.
    if (before_first_ > 0) std::ranges::fill(touched_, before_first_);
  }
  auto adam = optim::adam_update_of(config_, scale, learning_rate, step, config_.weight_decay);
  const auto update_all = [&]<class T>(T /*type*/) {
    const auto n = static_cast<std::size_t>(columns_);
    for (std::size_t i = 0; i < mine_.size(); ++i) {
      const std::int32_t r = mine_[i];
      const auto* const sums = static_cast<const T*>(sums_[i]);
      if (moments_.empty()) {
        kernels::sgd_update(row_at<T>(values_, r), sums, static_cast<T*>(nullptr), n,
                            {.scale = scale, .learning_rate = learning_rate});
      } else {
        const auto [first, second] = fading_of(r);
        adam.idle1 = first;
        adam.idle2 = second;
        kernels::adam_update(row_at<T>(values_, r), sums, row_at<T>(moments_[0], r),
                             row_at<T>(moments_[1], r), n, adam);
      }
    }
  };
  as_double() ? update_all(double()) : update_all(float());
  for (const std::int32_t row : used_) {
    current_[static_cast<std::size_t>(row)] = step;
    faded_[static_cast<std::size_t>(row)] = step;
    touched_[static_cast<std::size_t>(row)] = step;
  }
  const bool decoupled = adam.decay == kernels::AdamUpdate::Decay::decoupled;
  done_.push_back({.moved = learning_rate / adam.bias1,
                   .spread = 1.0 / std::sqrt(adam.bias2),
                   .shrink = decoupled ? 1.0 - learning_rate * config_.weight_decay : 1.0});
}

void RowUpdates::flush() {
  std::vector<std::int32_t> all(static_cast<std::size_t>(rows_));
  std::iota(all.begin(), all.end(), 0);
  const auto mine = share_of(all);
  const auto flush_rows = [&]<class T>(T /*type*/) {
    make_current<T>(mine);
    fade<T>(mine);
  };
  as_double() ? flush_rows(double()) : flush_rows(float());
  const auto last = steps_done();
  std::ranges::fill(current_, last);
  std::ranges::fill(faded_, last);
  wait_for_all();
}

}  // namespace dtrain::parallel
