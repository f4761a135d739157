#include "core/log.hpp"

#include <fmt/format.h>

#include <string>

namespace dtrain {
namespace {

// One write per line, so that lines of several ranks do not mix on a shared terminal.
void write_line(std::FILE* file, const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), file);
  std::fflush(file);
}

}  // namespace

void Log::info(std::string_view line) const {
  if (rank_ == 0 && verbosity_ == Verbosity::normal) write_line(out_, fmt::format("{}\n", line));
}

void Log::warn(std::string_view line) const {
  write_line(err_, fmt::format("dtrain: rank {}: warning: {}\n", name_, line));
}

}  // namespace dtrain
