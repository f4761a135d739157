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

}  // namespace dtrain::models
