#pragma once

#include <memory>

#include "comm/collectives/message_steps.hpp"
#include "comm/encoding.hpp"

namespace dtrain::comm {

/// The messages of `rounds` between the ranks of `party`, one round after another. What is computed for a
/// round is computed while the step advances.
std::unique_ptr<Step> make_encoded_all_reduce(Party party, std::unique_ptr<MessageRounds> rounds);

}  // namespace dtrain::comm
