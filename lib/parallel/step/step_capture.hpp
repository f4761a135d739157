#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "core/span_sink.hpp"
#include "parallel/step/device_graph.hpp"

namespace dtrain::parallel {

/// A step as a device was given it once: graphs, and what the CPU does before, between and after them.
class CapturedStep {
 public:
  void replay() const;
  std::size_t graphs() const { return graphs_; }

 private:
  friend class StepCapture;
  std::vector<std::function<void()>> parts_;  // in the order in which they take place
  std::size_t graphs_ = 0;
};

/// Captures a step. It is the sink of the spans of the step's compute thread: the work within a span of
/// forward or backward becomes a graph, and each replay reports the spans again. Else it passes spans on.
///
/// Nothing is done by capture() but what the CPU does on its own: no operation runs on the device, and what
/// repeat() and repeat_between() are given waits for the replay. So a capture that fails leaves nothing that
/// a peer could have seen.
class StepCapture final : public PassingSpanSink {
 public:
  /// Both are borrowed.
  StepCapture(SpanSink& sink, const DeviceGraphs& graphs) : PassingSpanSink(sink), graphs_(graphs) {}

  /// What `work` gives the device. Throws what `work` throws, c10::Error where something cannot be captured;
  /// the caller may then not rely on anything that the device did.
  CapturedStep capture(const std::function<void()>& work);
  bool capturing() const { return capturing_; }

  /// What `work` gives the device, as one graph, whatever spans there are. While nothing else is captured.
  /// Throws as capture() does.
  std::unique_ptr<DeviceGraph> graph_of(const std::function<void()>& work) const;

  /// While capturing(): `action` is to be done in each replay, when the device has been given what came
  /// before it, and perhaps more. May be called in backward's thread.
  void repeat(std::function<void()> action);
  /// The same before the device is given any more.
  void repeat_between(std::function<void()> action);

  void enter(Phase phase, std::string_view name) override;
  void leave() override;

 private:
  void begin_graph();
  void end_graph();
  void give_up() noexcept;

  const DeviceGraphs& graphs_;
  bool capturing_ = false;
  int depth_ = 0;  // of spans, while capturing
  CapturedStep step_;
  std::shared_ptr<DeviceGraph> graph_;            // that is being captured
  std::vector<std::function<void()>> meanwhile_;  // what the CPU does while the device has the graph
  std::exception_ptr failure_;                    // of a graph's end: a span cannot throw
};

}  // namespace dtrain::parallel
