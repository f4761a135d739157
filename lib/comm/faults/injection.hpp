#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "comm/emulation/stretched_compute.hpp"
#include "comm/faults/injected_fault.hpp"
#include "comm/group.hpp"
#include "core/span_sink.hpp"

namespace dtrain::comm {

class TamperedGroup;

/// Makes the faults of this rank happen, or tells the trainer which are due: those of the loss and of
/// weights. Spans pass through to the sink behind it.
class Injection final : public StretchedCompute {
 public:
  Injection(const std::vector<InjectedFault>& faults, int rank, SpanSink& sink);
  ~Injection() override;
  Injection(const Injection&) = delete;
  Injection& operator=(const Injection&) = delete;

  void begin_step(std::int64_t step);
  void reach(std::string_view phase);  ///< For phases that are no spans.
  bool spoils_loss() const;            ///< In this step.
  bool drifts() const;                 ///< Likewise.

  /// `group`, borrowed, with the faults of its sums in it; at most once.
  Group& tampered(Group& group);

  void enter(Phase phase, std::string_view name) override;

 private:
  bool has(InjectedFault::Kind kind) const;
  double slowness() const;

  std::vector<InjectedFault> faults_;
  std::int64_t step_ = 0;
  std::unique_ptr<TamperedGroup> tampered_;
};

}  // namespace dtrain::comm
