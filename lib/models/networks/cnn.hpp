#pragma once

#include "models/model.hpp"

namespace dtrain::models {

/// A small convolutional network after LeNet-5: conv1 C-6 k5, pool 2, conv2 6-16 k5, pool 2, fc1 -120, fc2
/// 120-84, fc3 84-classes, ReLU. Takes images [C, H, W] of at least 16 x 16; no options.
Registration cnn();

}  // namespace dtrain::models
