#pragma once

#include <functional>
#include <optional>
#include <string_view>

namespace dtrain::models::exported {

/// The value of a size by its name in a condition, such as `s77` or `L['x'].size()[0]`; nothing: not known.
using SizeByName = std::function<std::optional<double>(std::string_view name)>;

/// Whether a condition on sizes holds that torch.export has written: Python, such as
/// `(L['x'].size()[0] % 2) == 0`, or SymPy's text, such as `Eq(Mod(s77, 2), 0)`. Nothing where it has a size
/// or function that is not known. Never throws: the text is anything that a file may hold.
std::optional<bool> holds(std::string_view condition, const SizeByName& size);

}  // namespace dtrain::models::exported
