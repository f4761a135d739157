#include "data/placement/shared_error.hpp"

#include <sstream>

#include "core/printable.hpp"

namespace dtrain::data {

std::string error_to_text(const Error& error) {
  // Each on a line of its own: what others wrote must not add one.
  return printable(error.subject()) + "\n" + printable_sentence(error.problem()) + "\n" +
         printable_sentence(error.advice()) + "\n";
}

std::optional<Error> error_from_text(const std::string& text) {
  std::istringstream lines(text);
  std::string subject;
  std::string problem;
  std::string advice;
  if (!std::getline(lines, subject) || !std::getline(lines, problem) || !std::getline(lines, advice))
    return std::nullopt;
  return data_error(problem, subject, advice);
}

std::optional<Error> first_error(const NodeTeam& team, const std::optional<Error>& mine) {
  for (const std::string& text : team.share(mine ? error_to_text(*mine) : "")) {
    if (auto error = error_from_text(text)) return error;
  }
  return std::nullopt;
}

}  // namespace dtrain::data
