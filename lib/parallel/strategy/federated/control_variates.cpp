#include "parallel/strategy/federated/control_variates.hpp"

#include <ATen/ATen.h>

namespace dtrain::parallel {

ControlVariates::ControlVariates(const StrategyParts& parts, const at::Tensor& like)
    : parts_(parts),
      states_(parts.folder),
      server_(at::zeros_like(like)),
      client_(at::zeros_like(like)),
      correction_(at::zeros_like(like)) {}

void ControlVariates::begin_client(int client, std::int64_t round) {
  states_.load(client, round, client_);
  at::sub_out(correction_, server_, client_);
}

at::Tensor ControlVariates::change(const at::Tensor& update, double rates) {
  at::neg_out(correction_, server_);
  return correction_.sub_(update, 1 / rates);
}

void ControlVariates::end_client(int client, std::int64_t round) {
  client_.add_(correction_);
  states_.store(client, round, client_, states_.kept());
}

void ControlVariates::update_server(const RoundSum& sum) {
  sum.take_control(correction_);
  server_.add_(correction_);
}

}  // namespace dtrain::parallel
