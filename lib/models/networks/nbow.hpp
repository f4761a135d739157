#pragma once

#include "models/model.hpp"

namespace dtrain::models {

/// A bag of words for text classification: embedding V x 300, the mean over a text's real tokens (the first
/// 256), fc to the classes. Options: embedding=300, max-tokens=256.
Registration nbow();

}  // namespace dtrain::models
