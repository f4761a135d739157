#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/step/captures.hpp"
#include "parallel/step/device_graph.hpp"
#include "parallel/step/step_capture.hpp"

namespace dtrain::parallel {

/// Work that a device is given once in each step, outside of its forward and backward passes, and always in
/// the same way: captured after some steps, and replayed by one call.
class RepeatedWork {
 public:
  /// `capture` is borrowed. `name`: of the work, for the log.
  RepeatedWork(StepCapture& capture, std::string name, CaptureNews tell)
      : capture_(capture),
        name_(std::move(name)),
        tell_(tell),
        captures_("kinds of " + name_, std::move(tell)) {}

  /// `numbers`: all that differs between steps of what `work` gives the device, but for what lies in the
  /// device's memory.
  void run(const std::vector<double>& numbers, const std::function<void()>& work) {
    DeviceGraph* const graph = captures_.find(numbers, [&] {
      auto captured = capture_.graph_of(work);
      tell_(fmt::format("{} is replayed in 1 part", name_));
      return captured;
    });
    graph != nullptr ? graph->replay() : work();
  }

 private:
  StepCapture& capture_;
  std::string name_;
  CaptureNews tell_;
  Captures<std::vector<double>, DeviceGraph> captures_;
};

}  // namespace dtrain::parallel
