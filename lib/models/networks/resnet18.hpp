#pragma once

#include "models/model.hpp"

namespace dtrain::models {

/// torchvision's resnet18: a stem, eight residual blocks in four stages, an average pool, one linear layer.
/// Takes images [C, H, W] of at least 8 x 8. Options: width (channels of the first stage, 64), stem: cifar
/// (3 x 3 without max-pool) or imagenet (7 x 7 by 2, max-pool 3 by 2). Initialisation as torchvision's:
/// convolutions N(0, 2 / fan_out), fc PyTorch's default.
/// Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
Registration resnet18();

}  // namespace dtrain::models
