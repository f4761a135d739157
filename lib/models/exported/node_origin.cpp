#include "models/exported/node_origin.hpp"

#include <fmt/format.h>

#include <filesystem>

namespace dtrain::models::exported {

std::string line_of(const std::string& trace) {
  std::string found;
  std::size_t at = 0;
  while ((at = trace.find("File \"", at)) != std::string::npos) {
    const auto begin = at + 6;
    const auto end = trace.find("\", line ", begin);
    if (end == std::string::npos) break;
    const std::string file = trace.substr(begin, end - begin);
    const auto number_end = trace.find_first_not_of("0123456789", end + 8);
    const std::string number = trace.substr(end + 8, number_end - end - 8);
    at = end;
    if (file.find("/torch/") != std::string::npos || file.starts_with("torch/")) continue;
    auto code_begin = trace.find('\n', end);
    std::string code;
    if (code_begin != std::string::npos) {
      code_begin = trace.find_first_not_of(" \n", code_begin);
      if (code_begin != std::string::npos && trace.compare(code_begin, 6, "File \"") != 0)
        code = trace.substr(code_begin, trace.find('\n', code_begin) - code_begin);
    }
    found = fmt::format("{}:{}{}{}", std::filesystem::path(file).filename().string(), number,
                        code.empty() ? "" : ": ", code);
  }
  return found;
}

// Export also writes entries that have no module.
void set_module(Node& node, const std::string& stack) {
  const auto last = stack.rfind(';');
  const std::string entry = last == std::string::npos ? stack : stack.substr(last + 1);
  const auto first_comma = entry.find(',');
  const auto second_comma = entry.find(',', first_comma == std::string::npos ? first_comma : first_comma + 1);
  if (second_comma == std::string::npos || entry.starts_with("_empty_nn_module_stack")) return;
  node.module = entry.substr(first_comma + 1, second_comma - first_comma - 1);
  node.module_type = entry.substr(second_comma + 1);
}

}  // namespace dtrain::models::exported
