#pragma once

#include <string>

#include "parallel/strategy/federated/federated_options.hpp"

namespace dtrain::parallel {

/// What users choose of strategies beyond ddp. Which of them a strategy has, StrategyEntry::options says.
struct StrategyOptions {
  std::string compression = "none";      ///< Of gradients between nodes: CompressionChoice::parse().
  int compression_after = 0;             ///< Steps of the training before it begins.
  std::string shard_within = "all";      ///< What holds the shards together: `all` copies, or a `node`.
  std::string sync_period = "16";        ///< Steps of a copy's own between two exchanges, or `adaptive`.
  std::string sync_optimizer = "keep";   ///< Optimizer state at an exchange: `keep`, `average` or `reset`.
  int local_after = 0;                   ///< Steps in lock-step before the copies make steps of their own.
  std::string outer_optimizer = "none";  ///< `none`, or `nesterov` on what a round has changed.
  double outer_learning_rate = 0.7;
  double outer_momentum = 0.9;
  int fragments = 1;                   ///< Parts of the parameters that are exchanged at different steps.
  int overlap_steps = 0;               ///< That a copy makes while a part travels; 0: it waits for the part.
  std::string exchange_type = "full";  ///< Of what travels: `full` (the parameters' own), `bfloat16`, `int8`.
  int servers =
      1;  ///< Data ranks that keep the parameters, and compute nothing; 0: all do, beside computing.
  int staleness = 4;                        ///< Steps that a copy may be ahead of the slowest; 0: lock-step.
  std::string staleness_rate = "constant";  ///< Learning rate of a late update: `constant`, or `divided`.
  std::string easgd_mode = "rounds";  ///< How copies meet the centre: in `rounds`, or each `asynchronous`.
  double dp_clip = 0;         ///< Largest norm of a sample's gradient, or a client's update; 0: no privacy.
  double dp_noise = -1;       ///< In multiples of dp_clip; below 0: what target_epsilon needs.
  double target_epsilon = 0;  ///< The run ends before it has released more; 0: it does not.
  double dp_delta = 1e-5;
  std::string dp_sampler = "poisson";   ///< privacy::parse_sampling().
  std::string dp_accountant = "rdp";    ///< privacy::parse_accounting().
  std::string noise_source = "secure";  ///< privacy::parse_noise_source().
  std::string dp_unit = "record";       ///< What is one more or less: a `record` of a client, or a `client`.
  double dp_adaptive_clip = 0;          ///< Quantile of the updates' norms that dp_clip follows; 0: it stays.
  double elasticity = 0;  ///< In (0, 1): what moves between a copy and the centre; 0: 0.9 / copies.
  FederatedOptions federated = {};
};

}  // namespace dtrain::parallel
