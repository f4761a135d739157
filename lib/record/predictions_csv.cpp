#include "record/predictions_csv.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "core/error.hpp"
#include "core/own_place.hpp"

namespace dtrain::record {
namespace {

/// A cell as RFC 4180 wants it.
std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '"') quoted += '"';
    quoted += letter;
  }
  return quoted + '"';
}

void write_header(std::ostream& out, const Predictions& predictions, std::size_t width) {
  out << (predictions.names.empty() ? "row" : "file");
  if (!predictions.classes.empty()) {
    out << ",class,probability";
    for (const auto& name : predictions.classes) out << ',' << cell(fmt::format("p({})", name));
  } else if (predictions.target_names.size() == width) {
    for (const auto& name : predictions.target_names) out << ',' << cell(fmt::format("prediction({})", name));
  } else if (width == 1) {
    out << ",prediction";
  } else {
    for (std::size_t i = 0; i < width; ++i) out << ",output" << i;
  }
  out << '\n';
}

void write_rows(std::ostream& out, const Predictions& predictions, std::size_t width) {
  const bool classes = !predictions.classes.empty();
  const auto probabilities = classes ? probabilities_of(predictions) : std::vector<double>();
  const auto predicted = classes ? predicted_classes(predictions) : std::vector<std::int64_t>();
  for (std::size_t row = 0; row < static_cast<std::size_t>(predictions.samples); ++row) {
    std::string line = predictions.names.empty() ? std::to_string(row + 1) : cell(predictions.names[row]);
    const auto to = std::back_inserter(line);
    if (classes) {
      const auto best = static_cast<std::size_t>(predicted[row]);
      fmt::format_to(to, ",{},{}", cell(predictions.classes.at(best)), probabilities[row * width + best]);
      for (std::size_t i = 0; i < width; ++i) fmt::format_to(to, ",{}", probabilities[row * width + i]);
    } else {
      for (std::size_t i = 0; i < width; ++i) fmt::format_to(to, ",{}", predictions.outputs[row * width + i]);
    }
    out << line << '\n';
  }
}

}  // namespace

void write_predictions_csv(const std::string& path, const Predictions& predictions) {
  const std::string partial = path + ".partial";
  const std::size_t width = predictions.outputs.size() / static_cast<std::size_t>(predictions.samples);
  claim_file(partial, ExitCode::failure);
  std::error_code failed;
  {
    std::ofstream out(partial, std::ios::trunc);
    write_header(out, predictions, width);
    write_rows(out, predictions, width);
    out.close();
    if (out) std::filesystem::rename(partial, path, failed);
    if (out && !failed) return;
  }
  std::error_code ignored;
  std::filesystem::remove(partial, ignored);
  throw Error(fmt::format("cannot be written{}", failed ? " (" + failed.message() + ")" : ""),
              {.subject = path, .advice = "free some space, or give another file"});
}

}  // namespace dtrain::record
