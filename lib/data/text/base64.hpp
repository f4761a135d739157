#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrain::data {

/// Bytes as printable text, for a model inside a JSON file. Source: RFC 4648, section 4.
std::string to_base64(std::string_view bytes);

/// The bytes again; nothing when `text` is not base64 with its padding.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace dtrain::data
