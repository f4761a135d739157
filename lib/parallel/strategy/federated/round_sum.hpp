#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "parallel/step/step.hpp"

namespace dtrain::parallel {

/// What a client hands in when it has made its local steps.
struct ClientUpdate {
  const ClientWork& work;
  const StepTotals& totals;  ///< What its local steps came to.
  at::Tensor& parameters;    ///< [n] What they have changed, float or double; it may be clipped in place.
  at::Tensor buffers;        ///< [m] The same of buffers that training changes, double.
  at::Tensor control;        ///< [n] The same of SCAFFOLD's c_i; undefined: of another rule.
  double local_work = 1;     ///< Of FedNova: how often the gradients of its local steps come to act.
};

/// How the updates of a round's clients become one: by ranks that see them (PlainSum), or such that none does
/// (SecureRounds). All ranks make the same calls in the same order.
class RoundSum {
 public:
  RoundSum() = default;
  virtual ~RoundSum() = default;
  RoundSum(const RoundSum&) = delete;
  RoundSum& operator=(const RoundSum&) = delete;

  /// Before any client trains. Collective.
  virtual void begin(const StepPlan& plan) = 0;

  /// After begin(): there will be no sum, so that no client need train. Not collective.
  virtual bool has_failed() const { return false; }

  /// A client of this rank still trains. Not collective.
  virtual void show_life() {}

  /// Adds a client of this rank. `own` gets what this rank may show of its local steps. False: a number is
  /// not finite, or too large for a sum, and nothing was added. Not collective.
  virtual bool hand_in(const ClientUpdate& update, StepTotals& own) = 0;

  /// The same on all ranks, but for the words.
  struct Result {
    bool is_update = false;    ///< The mean is one, to be applied.
    int clients = 0;           ///< In the sum.
    std::int64_t samples = 0;  ///< Of these; 0: the sum does not say.
    StepTotals totals;         ///< Of their local steps, where the sum says what no rank may.
    std::string problem = {};  ///< On rank 0: why there is no sum; empty where there is one.
    std::string news = {};     ///< On rank 0, seldom: what a user should hear of it.
  };
  /// `mean` [n] becomes the mean update, by the rule of the run; what it was where there is no sum.
  /// Collective.
  virtual Result finish(at::Tensor& mean) = 0;

  /// After finish(), what else was summed: the mean of ClientUpdate::buffers into `change` [m], and the sum
  /// of ClientUpdate::control over the number of all clients into `change` [n]. Not collective.
  virtual void take_buffers(at::Tensor& /*change*/) const {}
  virtual void take_control(at::Tensor& /*change*/) const {}
};

}  // namespace dtrain::parallel
