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

std::string grouped(std::int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const bool starts_three = i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0;
    if (starts_three) text += ',';
    text += digits[i];
  }
  return text;
}

std::string numbered(std::string_view thing, const std::vector<int>& numbers) {
  return fmt::format("{}{} {}", thing, numbers.size() == 1 ? "" : "s", fmt::join(numbers, ", "));
}

std::string number_list(std::span<const int> numbers) {
  std::string list;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!list.empty()) list += ',';
    list += std::to_string(numbers[first]);
    if (last > first) list += '-' + std::to_string(numbers[last]);
    first = last + 1;
  }
  return list;
}

}  // namespace dtrain
