#include "models/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "core/error.hpp"
#include "core/parse_number.hpp"

namespace dtrain::models {

void refuse_unknown(const std::string& model, const ModelOptions& options,
                    const std::vector<std::string>& known) {
  for (const auto& [key, value] : options) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string advice =
        known.empty() ? "leave it out: there are none" : fmt::format("use one of {}", fmt::join(known, ", "));
    throw usage_error(fmt::format("the model {} has no option {}", model, key),
                      fmt::format("--model-option {}={}", key, value), advice);
  }
}

std::string option_or(const ModelOptions& options, const std::string& key, const std::string& fallback) {
  const auto place = options.find(key);
  return place == options.end() ? fallback : place->second;
}

std::vector<std::int64_t> parse_sizes(const std::string& key, const std::string& text) {
  constexpr std::int64_t kLargest = 1 << 20;
  constexpr std::size_t kMostSizes = 1000;
  std::vector<std::int64_t> sizes;
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto size = leading_number<std::int64_t>(rest);
    const bool separated = size.rest.empty() || (size.rest.starts_with(',') && size.rest.size() > 1);
    if (!size || !separated || size.value < 1 || size.value > kLargest) {
      throw usage_error(
          fmt::format("{} is not a list of sizes", text), fmt::format("--model-option {}={}", key, text),
          fmt::format("use numbers from 1 to {} with commas between, such as 250,100", kLargest));
    }
    if (sizes.size() == kMostSizes) {
      throw usage_error(fmt::format("holds more than {} sizes", kMostSizes), "--model-option " + key,
                        "use fewer");
    }
    sizes.push_back(size.value);
    rest = size.rest.empty() ? size.rest : size.rest.substr(1);
  }
  return sizes;
}

std::int64_t size_option(const ModelOptions& options, const std::string& key, std::int64_t fallback) {
  const auto place = options.find(key);
  if (place == options.end()) return fallback;
  const auto sizes = parse_sizes(key, place->second);
  if (sizes.size() != 1) {
    throw usage_error(fmt::format("\"{}\" is not a size", place->second),
                      fmt::format("--model-option {}={}", key, place->second), "use one positive number");
  }
  return sizes[0];
}

double probability_option(const ModelOptions& options, const std::string& key, double fallback,
                          Certainty certainty) {
  const auto place = options.find(key);
  if (place == options.end()) return fallback;
  const std::string& text = place->second;
  const auto value = parse_number<double>(text);
  const bool may_be_one = certainty == Certainty::allowed;
  if (!value || !(*value >= 0.0 && (*value < 1.0 || (may_be_one && *value == 1.0)))) {
    throw usage_error(fmt::format("\"{}\" is not a probability", text),
                      fmt::format("--model-option {}={}", key, text),
                      may_be_one ? "use a number from 0 to 1" : "use a number from 0 to below 1");
  }
  return *value;
}

std::string choice_option(const ModelOptions& options, const std::string& key,
                          const std::vector<std::string>& choices) {
  const std::string chosen = option_or(options, key, choices.front());
  if (std::ranges::find(choices, chosen) != choices.end()) return chosen;
  throw usage_error(fmt::format("there is no {} {}", key, chosen),
                    fmt::format("--model-option {}={}", key, chosen),
                    fmt::format("use one of {}", fmt::join(choices, ", ")));
}

}  // namespace dtrain::models
