#include "core/counted.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dtrain {
namespace {

std::string_view plural_ending(std::string_view thing) { return thing.ends_with("ch") ? "es" : "s"; }

}  // namespace

std::string counted(std::int64_t number, std::string_view thing) {
  return fmt::format("{} {}{}", number, thing, number == 1 ? "" : plural_ending(thing));
}

std::string numbered(std::string_view thing, const std::vector<int>& numbers) {
  return fmt::format("{}{} {}", thing, numbers.size() == 1 ? "" : "s", fmt::join(numbers, ", "));
}

}  // namespace dtrain
