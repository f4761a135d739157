#pragma once

#include "models/model.hpp"

namespace dtrain::models {

/// torchvision's vgg11_bn: eight convolutions 3 x 3 with BatchNorm and ReLU, five pools by 2, an average
/// pool, three linear layers with dropout 0.5. Takes images [C, H, W] of at least 32 x 32. Options: width
/// (channels of the first convolution, 64), hidden (4096), dropout (0.5), head: cifar (average pool to 1 x 1)
/// or imagenet (to 7 x 7). Convolutions start as torchvision's, N(0, 2 / fan_out) with biases 0; linear
/// layers as PyTorch's default, not from torchvision's N(0, 0.01^2), with which narrow networks stay at
/// chance for long. Source: Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
/// Recognition", 2015.
Registration vgg11();

}  // namespace dtrain::models
