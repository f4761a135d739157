#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "comm/group.hpp"
#include "core/slice.hpp"
#include "models/model.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/pipeline/layer_weights.hpp"
#include "parallel/tensor/common_parameters.hpp"

namespace dtrain::parallel {

/// The runs of flat parameters that belong to one layer each, in the order of the block.
std::vector<Range> runs_of_layers(models::Model& model, const FlatParameters& parameters);

/// Trained parameters of which each rank holds a shard: part_of() the parameters of each layer. While a layer
/// computes its parameters are there as a whole, gathered from all ranks; the next layer's are under way.
/// Otherwise their tensors keep shape and place in the graph, and have no memory.
/// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC
/// 2020, section 5.3; Zhao et al., "PyTorch FSDP", VLDB 2023, for the storage that comes and goes.
class LayerShards final : public LayerWeights {
 public:
  /// Gets each parameter that a layer uses, when the layer's backward pass is over.
  using Passed = std::function<void(const models::Parameter* parameter)>;

  /// Takes over the model's values, layer after layer: `parameters`, laid out without values, has the shard
  /// from then on. A parameter that is a shape only gets its first values, of `seed`, when its layer's turn
  /// comes: no rank ever has more than its shard and a layer then. On the CPU. Collective. Throws Error when
  /// ranks have other values.
  LayerShards(models::Model& model, FlatParameters& parameters, comm::Group& group, Passed passed,
              std::uint64_t seed = 0);

  void bring(std::int64_t layer, std::optional<std::int64_t> next) override;
  void drop(std::int64_t layer, Pass pass) override;

  /// The layer's own parameters are there as a whole, to be written to. Collective.
  void open(std::size_t layer);
  /// What has been written to them becomes the shard's values.
  void close(std::size_t layer);

  /// The ranks of a tensor group take over the first one's copies of what they have in common, by ranges of
  /// shared_out(). Collective over both groups.
  void agree(const CommonParameters& common);

  const std::vector<Range>& shared_out() const { return ranges_; }
  const std::vector<Range>& held() const { return parts_; }  ///< By range: this rank's part.

 private:
  struct Whole {
    at::Tensor values;  // [range]; without memory unless it is used
    int users = 0;
    comm::Handle gathering;
  };
  at::Tensor shard_of(std::size_t range) const;
  void hold(std::size_t range);
  void release(std::size_t range);
  void take_over(std::size_t range);

  FlatParameters& parameters_;
  comm::Group& group_;
  Passed passed_;
  std::vector<Range> ranges_;
  std::vector<Range> parts_;
  std::vector<std::int64_t> places_;  // of parts_ in the shard
  std::vector<Whole> wholes_;
  std::vector<std::vector<const models::Parameter*>> used_;  // by layer: trained ones
  std::vector<std::vector<std::size_t>> needed_;             // by layer: ranges
  std::vector<std::optional<std::size_t>> own_;              // by layer: the range of its own parameters
  std::optional<std::int64_t> ahead_;                        // the layer whose weights are under way
};

}  // namespace dtrain::parallel
