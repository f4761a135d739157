#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/philox.hpp"

namespace dtrain::kernels {

/// Elements [first_index, first_index + n) of the stream as uniform numbers of [low, high). Computed in float
/// and cast, so that fp32 and fp64 runs start alike; any slice equals that part of the whole.
template <class T>
void fill_uniform(T* out, std::size_t n, const RandomKey& key, std::uint64_t first_index, float low,
                  float high);

/// The same with normal numbers (Box-Muller; elements 2j and 2j + 1 come from one pair of words).
template <class T>
void fill_normal(T* out, std::size_t n, const RandomKey& key, std::uint64_t first_index, float mean,
                 float deviation);

extern template void fill_uniform<float>(float*, std::size_t, const RandomKey&, std::uint64_t, float, float);
extern template void fill_uniform<double>(double*, std::size_t, const RandomKey&, std::uint64_t, float,
                                          float);
extern template void fill_normal<float>(float*, std::size_t, const RandomKey&, std::uint64_t, float, float);
extern template void fill_normal<double>(double*, std::size_t, const RandomKey&, std::uint64_t, float, float);

}  // namespace dtrain::kernels
