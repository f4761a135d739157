#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "comm/emulation/virtual_clock.hpp"
#include "comm/queue.hpp"
#include "parallel/memory/exchange_memory.hpp"
#include "parallel/memory/memory_meter.hpp"
#include "parallel/strategy/part_exchange.hpp"
#include "parallel/strategy/state_view.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// Parts of the parameters whose mean over all copies travels while the copies make further steps. A part
/// arrives a stated number of steps after it was sent, in the order of sending, and at no other step however
/// early its messages are there: so the training does not depend on their timing. Source: Douillard et al.,
/// "Streaming DiLoCo with overlapping communication", 2025.
class LateParts {
 public:
  /// Borrows `parts` and `exchange`. `steps`: from sending to arrival, 1 or more. Collective over the copies.
  LateParts(const StrategyParts& parts, PartExchange& exchange, int steps);
  /// Gives up what is on its way: the queue with it.
  ~LateParts();
  LateParts(const LateParts&) = delete;
  LateParts& operator=(const LateParts&) = delete;

  /// The copy makes one more step.
  void count_step();
  /// `values` [n]: of this copy, of which `part` is sent; `agreed`, `weight`: as PartExchange. Collective
  /// over the copies.
  void send(const Range& part, const at::Tensor& values, const at::Tensor& agreed,
            PartExchange::Weight weight);

  bool empty() const { return on_the_way_.empty(); }
  /// Whether the part sent first is due now.
  bool is_due() const { return !empty() && on_the_way_.front().steps >= steps_; }
  /// Whether some of `part` is on its way.
  bool has(const Range& part) const;

  struct Arrived {
    Range part;
    at::Tensor mean;  ///< [n]; `part` of it has the mean. May be written until the next send().
    int steps = 0;    ///< That this copy has made since.
  };
  /// The part sent first; waits for it.
  Arrived take();

  /// Waits for all parts, and makes state() what is on its way now. Nothing arrives by that.
  void prepare_state();
  /// The means, and in how many steps they arrive; 0: nothing is on its way.
  std::vector<StateView::Flat> state() const;
  /// state() was written to: goes on from there.
  void adopt_state();
  void forget() { on_the_way_.clear(); }  ///< Of prepared or adopted parts.

 private:
  struct Part {
    Range range;
    std::unique_ptr<SentPart> sent;  // null: the mean is there
    int steps = 0;                   // since it was sent
    bool clocked = false;            // the clock knows of it
  };
  void receive(Part& part);
  at::Tensor mean_of(const Range& part) const;

  PartExchange& exchange_;
  comm::Queue& queue_;
  comm::VirtualClock* clock_;  // null: there is none
  int steps_;
  MemoryCharge charge_;
  ExchangeMemory means_;  // [n]
  at::Tensor left_;       // [n], steps until the arrival; only for state()
  std::deque<Part> on_the_way_;
};

}  // namespace dtrain::parallel
