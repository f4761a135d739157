#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/model.hpp"
#include "optim/optimizer.hpp"
#include "parallel/strategy/strategy_options.hpp"
#include "topology/mesh.hpp"

namespace dtrain::parallel {

/// What is public of a client of federated training.
struct ClientFacts {
  std::int64_t samples = 1;
  std::int64_t batch = 1;        ///< Samples of a local step; at most all.
  std::int64_t local_steps = 1;  ///< In a round.
};

/// The facts of a run that decide what a strategy can do. A strategy is asked twice: with what the options
/// say, before anything is allocated, and again when model, dataset and device are there.
struct Setting {
  topology::MeshShape mesh = {};
  bool reproducible = false;                ///< The same bits on every number of data and pipe ranks.
  std::optional<at::ScalarType> half = {};  ///< Mixed precision.
  bool fused_kernels = false;               ///< Layers also use those that join operations.
  bool own_kernels = true;            ///< Layers compute with our kernels, not with LibTorch's operators.
  bool on_device = false;             ///< Not the CPU computes.
  std::string no_device_graphs = {};  ///< Why the device replays no captured steps; empty: it can.
  bool samples_alike = true;          ///< All samples have one shape.
  bool class_weights = false;         ///< A step's weight depends on the classes of its samples.
  bool injects_faults = false;
  bool says_how_to_sum =
      false;                   ///< Buckets or an algorithm are given for gradients, or faults of their sums.
  bool recovers = false;       ///< The run is to go on after a rank was lost.
  bool adapts_batch = false;   ///< A step takes as many batches as the noise of its gradient asks for.
  bool owns_by_speed = false;  ///< Micro-batches are dealt by the ranks' measured speed.
  optim::OptimizerConfig optimizer = {};
  StrategyOptions options = {};
  std::int64_t global_batch = 1;
  std::int64_t micro_batches = 1;
  std::int64_t records = 0;        ///< Of the training split; 0: not known yet.
  std::int64_t total_steps = 0;    ///< Of the run, likewise.
  std::int64_t sample_extent = 0;  ///< The first dim of a sample: of texts the most tokens.
  /// Of federated training that is private or sums in secret; empty: another run, or not known yet.
  std::vector<ClientFacts> clients = {};
  /// Likewise, the clients that take part in a round (from 1), where they are drawn without secrets.
  std::function<std::vector<int>(std::int64_t round)> clients_of = {};
  models::Model* model = nullptr;  ///< Null: it is not made yet.
};

/// Whether a strategy can do something in a setting.
struct Answer {
  std::string why_not = {};  ///< Empty: it can.
  explicit operator bool() const { return why_not.empty(); }
};

/// What a strategy can do in a setting. Other code asks this, and never which strategy runs.
struct Abilities {
  Answer runs;             ///< At all.
  Answer replays_graphs;   ///< A device may replay captured steps.
  Answer updates_by_rows;  ///< The gradient of table_by_rows() is exchanged and applied by rows.
  Answer rolls_back;       ///< A half-applied update can be rolled back, after a rank was lost.
  Answer copies_parts;     ///< Each part of the state may be copied to another rank's memory (`--replicate`).
  Answer same_bits;        ///< The same bits on every number of data and pipe ranks.
  bool deals_work = false;  ///< Ranks take micro-batches at their own pace, by Strategy::take_work().
  Answer spares = {};       ///< A rank that waited may take the place of a lost one (`--spares`).
  /// Ranks that share the parameters' memory make the gradients of linear layers together (ProductSums).
  Answer makes_products = {"its copies do not sum their gradients in each step"};
  /// A step may take several batches, by the noise of its gradient (`--adaptive-batch`).
  Answer adapts_batch = {"its copies do not sum their gradients in each step"};
  /// The ranks may own micro-batches by their measured speed (`--balance data`): StepPlan::owned.
  Answer owns_by_speed = {"its copies do not wait for each other in each step"};
  /// Ranks that have the parameters whole keep a copy of them in half precision (HalfWeights).
  bool keeps_halves = false;
};

}  // namespace dtrain::parallel
