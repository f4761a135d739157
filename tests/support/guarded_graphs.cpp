// What captures the work that the guarded device (guarded_device.hpp) is given, as CUDA graphs do on GPUs.
#include <c10/util/Exception.h>

#include <memory>

#include "parallel/device/rank_device.hpp"
#include "parallel/step/device_graph.hpp"
#include "support/guarded_device.hpp"

namespace dtrain {
namespace {

class GuardedGraph final : public parallel::DeviceGraph {
 public:
  void begin() override { guarded_capture(&work_); }
  void end() override { guarded_capture(nullptr); }
  void abandon() noexcept override { guarded_capture(nullptr); }
  void replay() override {
    TORCH_CHECK(!work_.empty(), "a graph of nothing");
    for (const auto& operation : work_) operation();
  }

 private:
  GuardedWork work_;
};

class GuardedGraphs final : public parallel::DeviceGraphs {
 public:
  std::unique_ptr<parallel::DeviceGraph> make() const override { return std::make_unique<GuardedGraph>(); }
};

[[maybe_unused]] const bool kAreUsed = [] {
  static const GuardedGraphs graphs;
  parallel::use_extension_graphs(&graphs);
  return true;
}();

}  // namespace
}  // namespace dtrain
