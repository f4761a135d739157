#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/strategy/registry.hpp"
#include "parallel/strategy/rounds.hpp"

namespace dtrain::parallel {

/// `easgd`, elastic averaging in rounds: after each round a copy x and the centre c pull at each other with
/// the elasticity a: x moves by a (c - x), and c by the sum over all copies of a (x - c), with the values
/// from before. Copies stay apart and explore; the centre is the agreed model, evaluated and saved. With
/// sgd's momentum (Nesterov's) in the copies it is EAMSGD. Buffers are averaged, and all copies take the
/// mean.
///
/// Each rank keeps the whole centre: all of them need it in each exchange, and a lost rank takes none of it
/// away. An exchange is one sum over the copies. A checkpoint has the centre, and each copy's parameters and
/// optimizer state; on another number of copies all go on from the mean of the copies.
/// Source: Zhang, Choromanska and LeCun, "Deep learning with Elastic Averaging SGD", NIPS 2015, equations 5
/// and 6 (synchronous form), algorithm 2 (momentum).
class Easgd final : public Rounds {
 public:
  static Abilities can(const Setting& setting);

  /// Collective: as LocalCopy.
  explicit Easgd(const StrategyParts& parts);

  void synchronise() override;
  StateView state() override;
  void adopt_weights() override;
  void adopt_optimizer() override { parts().data.barrier().wait(); }
  void compare_copies(std::int64_t number) override;

 private:
  void begin_own_step(bool first) override;
  void exchange(double share) override;

  double elasticity_;
  at::Tensor centre_;          // [n], the same bits on all copies
  at::Tensor own_;             // [n], this copy's parameters while the model has the centre's
  at::Tensor sum_;             // [n], of an exchange
  bool shows_centre_ = false;  // the model's parameters are the centre's
};

StrategyEntry easgd();

}  // namespace dtrain::parallel
