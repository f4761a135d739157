#pragma once

#include <cstdint>
#include <string>

#include "models/model.hpp"

namespace dtrain::models {

enum class Classes { needed, not_needed };

/// Throws Error (exit code 2) unless the dataset's samples are images [C, H, W] of at least `smallest` x
/// `smallest` pixels, with classes where they are needed.
void require_images(const std::string& model, const DatasetFacts& facts, std::int64_t smallest,
                    Classes classes);

}  // namespace dtrain::models
