#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/model.hpp"
#include "parallel/strategy/federated/client_keeping.hpp"
#include "parallel/strategy/federated/client_models.hpp"
#include "parallel/strategy/federated/client_states.hpp"
#include "parallel/strategy/local_copy.hpp"
#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// The models of clients that train alone (`--federated-rule local`): weights and buffers, in files while
/// another client is simulated.
class OwnModels final : public ClientKeeping, public ClientModels {
 public:
  /// Everything is borrowed. `buffers`: those that training changes. Throws Error where the folder of the
  /// run's files cannot be made.
  OwnModels(const StrategyParts& parts, LocalCopy& copy, std::vector<models::Buffer*> buffers);

  void begin_round(std::int64_t round) override { states_.begin_round(parts_, round); }
  /// The model becomes the client's after its last round before `round`; where it has none, it stays as it
  /// is.
  void begin_client(int client, std::int64_t round) override;
  /// Keeps the model as the client's after `round`.
  void end_client(int client, std::int64_t round) override;

  ClientModels* models() override { return this; }
  void show(int client, std::int64_t round) override;

 private:
  StrategyParts parts_;
  LocalCopy& copy_;
  std::vector<models::Buffer*> buffers_;
  ClientStates states_;
  at::Tensor packed_;  // [1 + parameters + buffers]: 1 where there is a model
};

}  // namespace dtrain::parallel
