#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dtrain {

/// Bytes, from text such as `512`, `4KiB`, `1.5GiB` or `2TiB`; nothing where it is not that, or below 1.
std::optional<std::int64_t> parse_size(std::string_view text);

}  // namespace dtrain
