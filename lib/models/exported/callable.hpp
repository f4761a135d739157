#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrain::models::exported {

/// Why a program may not call LibTorch's operator SPACE::NAME, in words that follow its name; nothing where
/// it may. A file of others is no reason to trust it: what a forward pass on dense tensors uses may be
/// called, and what a plug-in of this process has registered. LibTorch has many operators more, which read
/// files, believe addresses, offsets and packed weights without a check, or serve backward passes.
std::optional<std::string> why_not_callable(std::string_view space, std::string_view name);

}  // namespace dtrain::models::exported
