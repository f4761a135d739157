#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/group.hpp"
#include "kernels/reduce.hpp"
#include "kernels/update.hpp"
#include "models/compute/gradient_place.hpp"
#include "optim/optimizer.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/row_exchange.hpp"

namespace dtrain::parallel {

/// The gradient's exchange and the update of one table of which a step uses few rows (an embedding), with the
/// result of the dense exchange and update, to rounding.
///
/// What travels is not the gradient but its factors, a gradient per sample and the samples' ids: they do not
/// grow with the table. Each rank adds up the rows it updates, in the order of the samples whatever the
/// number of ranks. A row that a step does not use moves all the same under Adam, whose moments fade; the
/// steps it has missed are made up for before it is used again, in one pass over the row
/// (kernels::adam_idle). Adam's eps leaves no closed form, but after some 200 steps (500 in fp64) with the
/// usual betas what still moves is below rounding. The moments of such a row fade in its next update, which
/// writes them anyway.
class RowUpdates {
 public:
  /// Whether the ranks hold one copy of the parameters and of the optimizer's state, each updating a share of
  /// the rows, or each a copy of its own.
  enum class Copies { one, each };

  /// Whether the rule can be applied by rows: adam without weight decay (which would feed idle rows'
  /// moments), adamw, and sgd with neither momentum nor weight decay.
  static bool supports(const optim::OptimizerConfig& config);

  /// For the parameter `entry` [rows, columns] of `parameters`, whose gradient it collects. `optimizer` holds
  /// its state and leaves it alone otherwise. Collective over `group`.
  RowUpdates(const FlatParameters& parameters, const FlatParameters::Entry& entry, comm::Group& group,
             const optim::Optimizer& optimizer, const optim::OptimizerConfig& config, Copies copies,
             const RowLimits& limits);
  RowUpdates(const RowUpdates&) = delete;
  RowUpdates& operator=(const RowUpdates&) = delete;

  const models::Parameter& parameter() const { return parameter_; }

  /// Before a step's first forward pass: makes the rows current that any rank is about to use. `ids`: int32
  /// [n, T] of each of this rank's pieces. Collective. The ranks of a node read each other's ids until
  /// finish() returns: a step that was begun is finished, updated or not, and the caller has all ranks agree
  /// before the next begins.
  void begin_step(const std::vector<at::Tensor>& ids);

  /// After the last backward pass: exchanges the factors and adds up this rank's rows. Collective.
  void finish();

  /// Of the rows this rank vouches for: disjoint over the group.
  kernels::SumOfSquares squares() const { return squares_; }

  /// Applies the step, numbered without gaps. With Copies::one no rank may use the table before all ranks
  /// have returned from here: the caller waits for them.
  void update(double scale, double learning_rate, std::int64_t step);

  /// Makes all rows current, for evaluation and checkpoints. Collective.
  void flush();

 private:
  /// What the schedule gave a step.
  struct Done {
    double moved = 0.0;   // learning rate / bias1
    double spread = 1.0;  // 1 / sqrt(bias2)
    double shrink = 1.0;
  };
  void find_used_rows();
  template <class T>
  void add_up();
  template <class T>
  void make_current(const std::vector<std::int32_t>& rows);  // but for the moments
  /// What the moments of a row must be multiplied by to be those of the last step.
  struct Fading {
    double first = 1.0;
    double second = 1.0;
  };
  Fading fading_of(std::int32_t row) const;
  template <class T>
  void fade(const std::vector<std::int32_t>& rows);
  void list_idle_steps(std::int32_t row);
  std::vector<std::int32_t> share_of(const std::vector<std::int32_t>& rows) const;
  std::int64_t steps_done() const { return before_first_ + static_cast<std::int64_t>(done_.size()); }
  template <class T>
  T* row_at(const at::Tensor& flat, std::int32_t row) const;
  void wait_for_all();
  bool as_double() const { return values_.scalar_type() == at::kDouble; }

  models::Parameter& parameter_;
  models::RowGradients factors_;  // this rank's, of the step
  models::GradientPlace place_;
  comm::Group& group_;
  const optim::OptimizerConfig config_;
  const Copies copies_;
  const std::int64_t rows_;
  const std::int64_t columns_;
  const std::int64_t offset_;
  at::Tensor values_;                // the flat block
  std::vector<at::Tensor> moments_;  // flat: exp_avg and exp_avg_sq, or none
  RowExchange exchange_;
  std::vector<std::int32_t> used_;     // rows of this step, ascending, the same on every rank
  std::vector<std::int32_t> mine_;     // those of them that this rank updates
  at::Tensor gradient_;                // [rows of mine_ used more than once, columns]
  std::vector<const void*> sums_;      // per row of mine_: in gradient_, or its one sample's gradient
  kernels::SumOfSquares squares_;      // of its rows that this rank vouches for
  std::vector<std::int32_t> slots_;    // per row: its place in mine_, or -1
  std::vector<std::int32_t> uses_;     // per row: how often the step uses it
  std::vector<std::int64_t> current_;  // per row: the step whose end its values are of
  std::vector<std::int64_t> faded_;    // per row: the step whose end its moments are of
  std::vector<std::int64_t> touched_;  // per row: the last step that used it, 0 for none
  std::vector<Done> done_;             // all steps since the first of this object
  std::int64_t before_first_ = 0;      // the number of the step before done_[0]
  std::int64_t longest_idle_;          // steps after which moments have faded below rounding
  std::vector<double> powers1_;        // beta1^k
  std::vector<double> powers2_;        // sqrt(beta2)^k
  std::vector<kernels::AdamIdleStep> idle_;
};

}  // namespace dtrain::parallel
