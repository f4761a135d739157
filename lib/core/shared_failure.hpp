#pragma once

#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/outside.hpp"

namespace dtrain {

// A failure of one rank becomes the failure of all: each rank gives its own as text, every rank reads the
// texts of all, and all of them throw the same sentence, so that it is printed once and no rank waits for
// another.

/// Calls `action` and returns what it throws: the caller can still meet the other ranks. Other exceptions
/// than an Error get the words of problem_of().
template <typename Action>
std::optional<Error> failure_of(Action&& action) {
  try {
    std::forward<Action>(action)();
    return std::nullopt;
  } catch (const std::exception& error) {
    return error_from_outside(error, {});
  }
}

/// Exit code, subject, problem and advice on a line each; empty where there is no failure.
std::string failure_to_text(const std::optional<Error>& failure);

/// Nothing when `text` is not what failure_to_text wrote of a failure.
std::optional<Error> failure_from_text(const std::string& text);

/// The failure of the lowest rank that has one, with the highest exit code of all failures; nothing where no
/// rank has one. `texts`: failure_to_text() of each rank.
std::optional<Error> first_failure(std::span<const std::string> texts);

}  // namespace dtrain
