#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/strategy/federated/client_models.hpp"
#include "parallel/strategy/federated/round_sum.hpp"
#include "parallel/strategy/federated/server_update.hpp"

namespace dtrain::parallel {

/// What clients keep from round to round: nothing, as here; models of their own (OwnModels); or the control
/// variates of SCAFFOLD (ControlVariates). Each hook stands at the place in the round from which FedAvg calls
/// it. Only begin_round() is collective.
class ClientKeeping {
 public:
  ClientKeeping() = default;
  virtual ~ClientKeeping() = default;
  ClientKeeping(const ClientKeeping&) = delete;
  ClientKeeping& operator=(const ClientKeeping&) = delete;

  virtual void begin_round(std::int64_t /*round*/) {}
  /// The model has the global weights: before a client's local steps.
  virtual void begin_client(int /*client*/, std::int64_t /*round*/) {}

  /// Whether correct() changes anything.
  virtual bool corrects() const { return false; }
  /// The gradient [n] of a local step, a sum over `weight` samples.
  virtual void correct(at::Tensor& /*gradient*/, double /*weight*/) {}

  /// ClientUpdate::control, of a client whose `update` [n] came of local steps whose rates add up to `rates`.
  virtual at::Tensor change(const at::Tensor& /*update*/, double /*rates*/) { return {}; }
  /// The client has handed in, and change() of it counts.
  virtual void end_client(int /*client*/, std::int64_t /*round*/) {}

  /// What the server keeps beside the global model, to be saved and restored; it changes with that model.
  virtual void update_server(const RoundSum& /*sum*/) {}
  virtual std::vector<ServerUpdate::Moments> server_state() const { return {}; }

  virtual ClientModels* models() { return nullptr; }  ///< Strategy::client_models()
};

}  // namespace dtrain::parallel
