#pragma once

#include <optional>
#include <string>

#include "comm/mpi/communicator.hpp"
#include "core/error.hpp"

namespace dtrain::comm {

/// The failure of the lowest rank that has one, the same on every rank; nothing where no rank has one (see
/// dtrain::first_failure). Collective.
std::optional<Error> first_failure(const std::optional<Error>& mine, const Communicator& world);

/// Throws on every rank, if any has a failure, that of the lowest rank with one, so that it is said once and
/// no rank goes on to wait for the others. Where not all ranks failed it names that rank's `host`.
/// Collective.
void throw_on_all(const std::optional<Error>& mine, const std::string& host, const Communicator& world);

}  // namespace dtrain::comm
