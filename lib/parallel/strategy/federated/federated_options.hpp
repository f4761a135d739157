#pragma once

#include <string>

#include "parallel/strategy/federated/secure/secure_options.hpp"

namespace dtrain::parallel {

/// What users choose of `fedavg`.
struct FederatedOptions {
  std::string partition;  ///< federated::PartitionRule::parse(); empty: sites where there are any, or iid.
  int clients = 0;        ///< 0: one for each site, or kUsualClients.
  int clients_per_round = 0;  ///< 0: all.
  int rounds = 100;
  int local_epochs = 1;
  std::string local_batch;      ///< Samples of a local step, `all`, or empty: the model's usual batch.
  std::string rule = "fedavg";  ///< `fedavg`, `fednova`, `scaffold` or `local`.
  double proximal_mu = 0;       ///< FedProx: how strongly local weights are held to the global ones.
  std::string server_optimizer = "none";  ///< `none`, `momentum`, `adam` or `yogi`.
  double server_rate = 0;                 ///< 0: 1 for none and momentum, 0.01 for adam and yogi.
  double server_momentum = 0.9;           ///< Of momentum; of adam and yogi beta 1.
  double drop_rate = 0;                   ///< Probability that a sampled client hands nothing in.
  double round_deadline = 0;              ///< Seconds after which a round ends without late clients; 0: none.

  SecureOptions secure = {};

  static constexpr int kUsualClients = 10;
  static constexpr double kAdaptiveServerRate = 0.01;  ///< Of adam and yogi.
};

}  // namespace dtrain::parallel
