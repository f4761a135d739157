#pragma once

#include <vector>

#include "kernels/element.hpp"

namespace dtrain::kernels {

template <class T>
std::vector<T> rounded(const std::vector<float>& values) {
  std::vector<T> to;
  for (const float value : values) to.push_back(from_float<T>(value));
  return to;
}

}  // namespace dtrain::kernels
