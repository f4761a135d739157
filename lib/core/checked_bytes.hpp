#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace dtrain {

/// Bytes of an array of this shape; nothing where an extent is negative or they are more than `limit`. For
/// shapes that a file tells: call it before memory is allocated or a place in the file is computed.
/// `element_bytes`: at least 1.
std::optional<std::int64_t> checked_bytes(std::span<const std::int64_t> shape, std::int64_t element_bytes,
                                          std::int64_t limit = std::numeric_limits<std::int64_t>::max());

}  // namespace dtrain
