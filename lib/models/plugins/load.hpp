#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::models {

/// The stamp in the bytes of a plug-in (plugin.hpp), without its frame; nothing where there is none.
std::optional<std::string> stamp_in(std::string_view bytes);

/// Opens plug-ins, whose code then runs in this process until its end: only files that the user has named may
/// come here. They register LibTorch's operators, models and losses. Throws Error (exit code 2) that names
/// the file: for one that cannot be opened, one without a stamp, and one of another build, with both stamps,
/// before anything of it runs.
void load_plugins(const std::vector<std::string>& files);

/// Whether the first operators of this namespace came with a plug-in.
bool is_space_of_plugin(const std::string& space);

/// Whether a plug-in has brought a loss of that name.
bool is_added_loss(const std::string& name);

}  // namespace dtrain::models
