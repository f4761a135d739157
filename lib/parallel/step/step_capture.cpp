#include "parallel/step/step_capture.hpp"

#include <iterator>
#include <utility>

namespace dtrain::parallel {

void CapturedStep::replay() const {
  for (const auto& part : parts_) part();
}

CapturedStep StepCapture::capture(const std::function<void()>& work) {
  step_ = {};
  failure_ = nullptr;
  depth_ = 0;
  capturing_ = true;
  try {
    work();
  } catch (...) {
    give_up();
    throw;
  }
  capturing_ = false;
  if (failure_) {
    give_up();
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  return std::exchange(step_, {});
}

std::unique_ptr<DeviceGraph> StepCapture::graph_of(const std::function<void()>& work) const {
  auto graph = graphs_.make();
  try {
    graph->begin();
    work();
    graph->end();
  } catch (...) {
    graph->abandon();
    throw;
  }
  return graph;
}

void StepCapture::give_up() noexcept {
  if (graph_ != nullptr) graph_->abandon();
  graph_.reset();
  meanwhile_.clear();
  step_ = {};  // graphs hold the memory of what they compute
  depth_ = 0;
  capturing_ = false;
}

void StepCapture::repeat(std::function<void()> action) {
  (graph_ != nullptr ? meanwhile_ : step_.parts_).push_back(std::move(action));
}

void StepCapture::repeat_between(std::function<void()> action) {
  const bool within_graph = graph_ != nullptr;
  end_graph();
  repeat(std::move(action));
  if (within_graph) begin_graph();
}

void StepCapture::enter(Phase phase, std::string_view name) {
  if (!capturing_) return PassingSpanSink::enter(phase, name);
  if (depth_++ > 0) return;
  repeat([this, phase, name] { PassingSpanSink::enter(phase, name); });
  if (phase == Phase::forward || phase == Phase::backward) begin_graph();
}

void StepCapture::leave() {
  if (depth_ == 0) return PassingSpanSink::leave();
  if (--depth_ > 0) return;
  end_graph();
  repeat([this] { PassingSpanSink::leave(); });
}

void StepCapture::begin_graph() {
  if (failure_) return;
  graph_ = graphs_.make();
  graph_->begin();
}

void StepCapture::end_graph() {
  if (graph_ == nullptr) return;
  const auto graph = std::exchange(graph_, nullptr);
  try {
    graph->end();
  } catch (...) {
    graph->abandon();
    failure_ = std::current_exception();
    return;
  }
  step_.parts_.emplace_back([graph] { graph->replay(); });
  ++step_.graphs_;
  step_.parts_.insert(step_.parts_.end(), std::move_iterator(meanwhile_.begin()),
                      std::move_iterator(meanwhile_.end()));
  meanwhile_.clear();
}

}  // namespace dtrain::parallel
