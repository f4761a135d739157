#include "train/config/strategy_setting.hpp"

#include "train/config/precision.hpp"

namespace dtrain::train {

parallel::Setting strategy_setting(const RunConfig& config) {
  return {.mesh = config.mesh_shape,
          .reproducible = config.reproducible,
          .half = half_type(config),
          .own_kernels = kernels_of(config) == models::Kernels::own,
          .on_device = config.computes_on_device(),
          .no_device_graphs = config.device_graphs == "off" ? "--device-graphs off" : "",
          .injects_faults = !config.inject.empty(),
          .recovers = config.on_failure != "abort",
          .optimizer = optimizer_config(config.optimizer),
          .global_batch = config.batch.global_batch,
          .micro_batches = config.batch.micro_batches};
}

parallel::Setting strategy_setting(const RunConfig& config, Job& job, const Workload& workload,
                                   bool recovers) {
  auto setting = strategy_setting(config);
  setting.on_device = !workload.device.is_cpu();
  if (setting.no_device_graphs.empty() && job.rank_device().graphs == nullptr)
    setting.no_device_graphs = job.rank_device().no_graphs;
  setting.samples_alike = workload.sample_shapes == parallel::StageMessages::SampleShapes::alike;
  setting.class_weights = workload.training_loss.class_weights.defined();
  setting.recovers = recovers;
  const auto& shape = workload.dataset.info().shape;
  setting.sample_extent = shape.empty() ? 0 : shape.front();
  setting.model = workload.model.get();
  return setting;
}

}  // namespace dtrain::train
