#include "core/number_list.hpp"

#include <cstddef>

namespace dtrain {

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
