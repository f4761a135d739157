#pragma once

#include <cstdio>
#include <string_view>

namespace dtrain {

/// Lines for the person at the terminal. Owned by main and handed down by reference; nothing else prints.
class Log {
 public:
  enum class Verbosity { quiet, normal };

  /// info() speaks only on rank 0, warn() on every rank (with its rank). Both write whole lines at once.
  Log(int rank, Verbosity verbosity, std::FILE* out = stdout, std::FILE* err = stderr)
      : rank_(rank), name_(rank), verbosity_(verbosity), out_(out), err_(err) {}

  void call_rank(int name) { name_ = name; }  ///< What warn() calls this rank, where that is not `rank`.

  void info(std::string_view line) const;  ///< To standard output; nothing when quiet or on another rank.
  void warn(std::string_view line) const;  ///< `dtrain: rank R: warning: LINE` to standard error.

  int rank() const noexcept { return rank_; }
  bool quiet() const noexcept { return verbosity_ == Verbosity::quiet; }

 private:
  int rank_;
  int name_;
  Verbosity verbosity_;
  std::FILE* out_;
  std::FILE* err_;
};

}  // namespace dtrain
