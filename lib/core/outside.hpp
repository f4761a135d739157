#pragma once

#include <exception>
#include <string>
#include <utility>

#include "core/error.hpp"

namespace dtrain {

/// The problem that an exception tells of, in our words: memory that is not there, JSON that is not what it
/// should be, the path of a file system's error. Of others their first line, without what is the library's
/// own.
std::string problem_of(const std::exception& error);

/// An Error of this subject, advice and exit code, unless `error` is one with a code of its own.
Error error_from_outside(const std::exception& error, const ErrorContext& context);

/// Does `action`, which understands what comes from outside (a file, an archive, a checkpoint's
/// configuration). Whatever it throws becomes an Error with the exit code of `context`: exceptions of
/// libraries in our words, an Error that only says `failure` with its own words. Other Errors pass.
template <typename Action>
auto understand_from_outside(const ErrorContext& context, Action&& action) -> decltype(action()) {
  try {
    return std::forward<Action>(action)();
  } catch (const Error& error) {
    if (error.code() != ExitCode::failure) throw;
    throw error_from_outside(error, context);
  } catch (const std::exception& error) {
    throw error_from_outside(error, context);
  }
}

}  // namespace dtrain
