#include "parallel/strategy/federated/federated_privacy.hpp"

#include "parallel/strategy/federated/client_privacy.hpp"
#include "parallel/strategy/federated/record_privacy.hpp"
#include "parallel/strategy/private/private_account.hpp"

namespace dtrain::parallel {
namespace {

bool is_by_client(const Setting& setting) { return setting.options.dp_unit == "client"; }

}  // namespace

Answer FederatedPrivacy::can(const Setting& setting) {
  if (setting.options.dp_clip <= 0) return {};
  if (const auto answer = can_be_private(setting); !answer) return answer;
  if (setting.options.federated.round_deadline > 0)
    return {
        "with --dp-clip no client may change which others are late, which is what --round-deadline leaves to "
        "the machine"};
  return is_by_client(setting) ? ClientPrivacy::can(setting) : Answer();
}

std::unique_ptr<FederatedPrivacy> FederatedPrivacy::make(const StrategyParts& parts, LocalCopy& copy) {
  if (parts.setting.options.dp_clip <= 0) return nullptr;
  if (is_by_client(parts.setting)) return std::make_unique<ClientPrivacy>(parts, copy.parameters());
  return std::make_unique<RecordPrivacy>(parts, copy);
}

}  // namespace dtrain::parallel
