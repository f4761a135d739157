#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace dtrain {

/// What the process ends with; README lists them for scripts.
enum class ExitCode : int {
  success = 0,
  failure = 1,     ///< Something went wrong while running.
  usage = 2,       ///< An option, a configuration file or their combination.
  data = 3,        ///< A dataset or one of its files.
  checkpoint = 4,  ///< A checkpoint, or no room to write one.
  lost_rank = 5,   ///< A rank died or hung and the run could not go on.
  stopped = 75,    ///< Stopped on request, with an agreed checkpoint written.
};

/// Where an error happened and what the reader can do about it.
struct ErrorContext {
  std::string subject;  ///< The file, dataset, option or peer concerned.
  std::string advice;   ///< The remedy, as an imperative.
  ExitCode code = ExitCode::failure;
};

/// The one exception type of dtrain: a fault of the world, not of our logic.
/// what() reads `SUBJECT: PROBLEM; ADVICE`; main adds the rank.
class Error : public std::runtime_error {
 public:
  Error(std::string_view problem, ErrorContext context);

  const std::string& problem() const noexcept { return problem_; }
  const std::string& subject() const noexcept { return context_.subject; }
  const std::string& advice() const noexcept { return context_.advice; }
  ExitCode code() const noexcept { return context_.code; }

 private:
  std::string problem_;
  ErrorContext context_;
};

/// Throws Error unless `condition` holds.
inline void require(bool condition, std::string_view problem, const ErrorContext& context) {
  if (!condition) throw Error(problem, context);
}

/// An Error about an option or the configuration file: exit code 2.
Error usage_error(std::string_view problem, std::string_view subject, std::string_view advice);

/// Throws it unless `good`.
inline void require_option(bool good, std::string_view problem, std::string_view option,
                           std::string_view advice) {
  if (!good) throw usage_error(problem, option, advice);
}

/// An Error about a dataset or one of its files: exit code 3.
Error data_error(std::string_view problem, std::string_view subject, std::string_view advice);

/// An Error about a checkpoint: exit code 4.
Error checkpoint_error(std::string_view problem, std::string_view subject, std::string_view advice);

}  // namespace dtrain
