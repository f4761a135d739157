#include "comm/watch/shared_failure.hpp"

#include <fmt/core.h>

#include <array>
#include <cstdint>

namespace dtrain::comm {

void throw_on_all(const std::optional<Error>& mine, const std::string& host, const Communicator& world) {
  std::array<std::int64_t, 1> failures = {mine ? 1 : 0};
  world.all_reduce_sum(failures);
  if (failures[0] == 0) return;
  const auto first = static_cast<int>(world.min(std::int64_t{mine ? world.rank() : world.size()}));
  const auto from_first = [&](const std::string& text) { return world.broadcast(text, first); };
  const std::string subject = from_first(mine ? mine->subject() : "");
  const std::string problem = from_first(mine ? mine->problem() : "");
  const std::string advice = from_first(mine ? mine->advice() : "");
  const std::string where = from_first(host);
  const bool everywhere = failures[0] == world.size();
  const auto code = world.max(static_cast<std::int64_t>(mine ? mine->code() : ExitCode::success));
  throw Error(everywhere ? problem : fmt::format("on {} (rank {}): {}", where, first, problem),
              {.subject = subject, .advice = advice, .code = static_cast<ExitCode>(code)});
}

}  // namespace dtrain::comm
