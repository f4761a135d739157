#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/strategy/federated/client_keeping.hpp"
#include "parallel/strategy/federated/client_states.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// SCAFFOLD: each local gradient is corrected by c - c_i, the control variates of the server and the client,
/// which follow the gradients that the client has had: c_i becomes c_i - c + (global - local) / (steps x
/// rate), and c moves by the sum of what the c_i have changed, over the number of all clients. c_i is kept in
/// a file while the client is idle. Source: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging
/// for Federated Learning", ICML 2020, algorithm 1 with option II.
class ControlVariates final : public ClientKeeping {
 public:
  /// `like` [n]: the global weights. Throws Error where the folder of the run's files cannot be made.
  ControlVariates(const StrategyParts& parts, const at::Tensor& like);

  void begin_round(std::int64_t round) override { states_.begin_round(parts_, round); }
  void begin_client(int client, std::int64_t round) override;
  bool corrects() const override { return true; }
  void correct(at::Tensor& gradient, double weight) override { gradient.add_(correction_, weight); }
  at::Tensor change(const at::Tensor& update, double rates) override;
  void end_client(int client, std::int64_t round) override;
  void update_server(const RoundSum& sum) override;
  std::vector<ServerUpdate::Moments> server_state() const override { return {{"control", server_}}; }

 private:
  StrategyParts parts_;
  ClientStates states_;
  at::Tensor server_;      // [n] c
  at::Tensor client_;      // [n] c_i
  at::Tensor correction_;  // [n] c - c_i; after the local steps what c_i changes by
};

}  // namespace dtrain::parallel
