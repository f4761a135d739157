#include "parallel/strategy/federated/federated_privacy.hpp"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>

#include "parallel/gradients/squares.hpp"
#include "parallel/strategy/federated/client_privacy.hpp"
#include "parallel/strategy/federated/record_privacy.hpp"
#include "parallel/strategy/federated/secure/secure_privacy.hpp"
#include "parallel/strategy/private/private_account.hpp"

namespace dtrain::parallel {

Answer FederatedPrivacy::can(const Setting& setting) {
  if (setting.options.dp_clip <= 0) return {};
  if (const auto answer = can_be_private(setting); !answer) return answer;
  if (hides_clients(setting)) return SecurePrivacy::can(setting);
  if (setting.options.federated.round_deadline > 0)
    return {
        "with --dp-clip no client may change which others are late, which is what --round-deadline leaves to "
        "the machine"};
  return setting.options.dp_unit == "client" ? ClientPrivacy::can(setting) : Answer();
}

std::unique_ptr<FederatedPrivacy> FederatedPrivacy::make(const StrategyParts& parts, LocalCopy& copy) {
  const auto& options = parts.setting.options;
  if (options.dp_clip <= 0) return nullptr;
  if (hides_clients(parts.setting)) return std::make_unique<SecurePrivacy>(parts, copy.parameters().size());
  if (options.dp_unit == "client") return std::make_unique<ClientPrivacy>(parts, copy.parameters());
  return std::make_unique<RecordPrivacy>(parts, copy);
}

double clip_to(at::Tensor& update, double limit) {
  const double norm = std::sqrt(squares_of(update).sum);
  if (norm <= limit) return norm;
  const double scale = limit / norm;  // in double: it may be below what a float tells apart
  AT_DISPATCH_FLOATING_TYPES(update.scalar_type(), "clip_to", [&] {
    auto* const values = update.mutable_data_ptr<scalar_t>();
    for (std::int64_t i = 0; i < update.numel(); ++i)
      values[i] = static_cast<scalar_t>(static_cast<double>(values[i]) * scale);
  });
  return norm;
}

std::int64_t clients_of_round(const Setting& setting) {
  const auto all = static_cast<std::int64_t>(setting.clients.size());
  const auto wanted = setting.options.federated.clients_per_round;
  return wanted > 0 ? std::min<std::int64_t>(wanted, all) : all;
}

}  // namespace dtrain::parallel
