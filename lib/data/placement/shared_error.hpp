#pragma once

#include <optional>
#include <string>

#include "core/error.hpp"
#include "data/source.hpp"

namespace dtrain::data {

// One rank's data_error as text that the other ranks of its node can make an Error of again, so that all
// throw the same sentence and it is printed once.

/// Subject, problem and advice on a line each.
std::string error_to_text(const Error& error);

/// Nothing when `text` is not what error_to_text wrote.
std::optional<Error> error_from_text(const std::string& text);

/// Of the lowest rank of the node that has an error, on all its ranks; nothing where none has one. Collective
/// over the node.
std::optional<Error> first_error(const NodeTeam& team, const std::optional<Error>& mine);

}  // namespace dtrain::data
