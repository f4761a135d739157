#include "comm/comm_config.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "core/error.hpp"

namespace dtrain::comm {
namespace {
constexpr std::array<std::string_view, 3> kBackends = {"auto", "mpi", "nccl"};
}  // namespace

Backend parse_backend(std::string_view name) {
  for (std::size_t i = 0; i < kBackends.size(); ++i) {
    if (name == kBackends[i]) return static_cast<Backend>(i);
  }
  throw usage_error("there is no such backend", fmt::format("--comm-backend {}", name),
                    "use one of auto, mpi, nccl");
}

std::string_view name_of(Backend backend) { return kBackends[static_cast<std::size_t>(backend)]; }

void CommConfig::validate() const {
  require(timeout_s > 0, fmt::format("{} seconds leave no time for a collective", timeout_s),
          {.subject = "--watchdog", .advice = "use a positive number of seconds", .code = ExitCode::usage});
  require(threads_per_rank >= 1, "a rank needs a thread",
          {.subject = "--threads", .advice = "give at least 1", .code = ExitCode::usage});
  require(piece_bytes >= 1 && piece_bytes <= std::numeric_limits<int>::max(),
          fmt::format("MPI cannot send a message in pieces of {} bytes", piece_bytes),
          {.subject = "CommConfig::piece_bytes", .advice = "use 1 to 2147483647", .code = ExitCode::usage});
}

}  // namespace dtrain::comm
