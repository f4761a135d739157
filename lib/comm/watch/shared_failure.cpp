#include "comm/watch/shared_failure.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/shared_failure.hpp"

namespace dtrain::comm {

std::optional<Error> first_failure(const std::optional<Error>& mine, const Communicator& world) {
  return dtrain::first_failure(world.all_gather(failure_to_text(mine)));
}

void throw_on_all(const std::optional<Error>& mine, const std::string& host, const Communicator& world) {
  const auto texts = world.all_gather(failure_to_text(mine));
  const auto first = dtrain::first_failure(texts);
  if (!first) return;
  if (std::ranges::none_of(texts, &std::string::empty)) throw Error(*first);
  const auto failed = std::ranges::find_if_not(texts, &std::string::empty);
  const auto rank = static_cast<int>(failed - texts.begin());
  throw Error(fmt::format("on {} (rank {}): {}", world.broadcast(host, rank), rank, first->problem()),
              {.subject = first->subject(), .advice = first->advice(), .code = first->code()});
}

}  // namespace dtrain::comm
