#pragma once

#include <cstddef>

namespace dtrain::kernels {

/// out [columns, rows] = in [rows, columns] with its dimensions exchanged. They must not overlap.
template <class T>
void transpose(T* out, const T* in, std::size_t rows, std::size_t columns);

extern template void transpose<float>(float*, const float*, std::size_t, std::size_t);
extern template void transpose<double>(double*, const double*, std::size_t, std::size_t);

}  // namespace dtrain::kernels
