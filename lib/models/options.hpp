#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.hpp"

namespace dtrain::models {

/// Throws Error (exit code 2) that lists `known` when `options` has another key.
void refuse_unknown(const std::string& model, const ModelOptions& options,
                    const std::vector<std::string>& known);

/// The value of `key`, or `fallback`.
std::string option_or(const ModelOptions& options, const std::string& key, const std::string& fallback);

/// `250,100` as numbers, each at least 1; an empty text is an empty list. Throws Error (exit code 2)
/// otherwise.
std::vector<std::int64_t> parse_sizes(const std::string& key, const std::string& text);

/// The value of `key` as one size of at least 1, or `fallback`. Throws Error (exit code 2) otherwise.
std::int64_t size_option(const ModelOptions& options, const std::string& key, std::int64_t fallback);

/// Whether a probability may be 1.
enum class Certainty { refused, allowed };

/// The value of `key` as a probability in [0, 1), or in [0, 1] as `certainty` says, or `fallback`. Throws
/// Error (exit code 2) otherwise.
double probability_option(const ModelOptions& options, const std::string& key, double fallback,
                          Certainty certainty = Certainty::refused);

/// One of `choices`, the first by default. Throws Error (exit code 2), listing them, otherwise.
std::string choice_option(const ModelOptions& options, const std::string& key,
                          const std::vector<std::string>& choices);

}  // namespace dtrain::models
