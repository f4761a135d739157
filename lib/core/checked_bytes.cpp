#include "core/checked_bytes.hpp"

namespace dtrain {

std::optional<std::int64_t> checked_bytes(std::span<const std::int64_t> shape, std::int64_t element_bytes,
                                          std::int64_t limit) {
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    empty = empty || extent == 0;
  }
  if (empty) return 0;
  if (element_bytes > limit) return std::nullopt;
  std::int64_t bytes = element_bytes;
  for (const std::int64_t extent : shape) {
    if (extent > limit / bytes) return std::nullopt;
    bytes *= extent;
  }
  return bytes;
}

}  // namespace dtrain
