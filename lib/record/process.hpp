#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dtrain::record {

std::string this_host();

/// When a process of this host was started, in the kernel's ticks; nothing where it does not run. One that
/// was killed stays listed, as a zombie, until its parent has asked for its end: it does not run.
std::optional<std::int64_t> start_of_process(std::int64_t pid);

}  // namespace dtrain::record
