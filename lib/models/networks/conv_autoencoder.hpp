#pragma once

#include "models/model.hpp"

namespace dtrain::models {

/// An encoder of convolutions k4 s2 p1 with ReLU and its mirror of transposed ones, last Sigmoid: images in
/// [0, 1] and back, through a code of 48 x H/8 x W/8. The loss is the mean squared error against the input.
/// Takes images [C, H, W] whose sides halve evenly; option channels (12,24,48).
Registration conv_autoencoder();

}  // namespace dtrain::models
