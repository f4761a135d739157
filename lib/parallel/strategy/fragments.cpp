#include "parallel/strategy/fragments.hpp"

namespace dtrain::parallel {

Fragments::Fragments(const FlatParameters& parameters, int count) {
  std::int64_t begin = 0;
  auto next = parameters.entries().begin();
  for (int index = 1; index <= count; ++index) {
    const auto wanted = part_of(parameters.size(), index, count).begin;
    std::int64_t end = begin;
    for (; next != parameters.entries().end(); ++next) {
      const auto with_next = FlatParameters::end_of(*next);
      if (with_next - wanted > wanted - end) break;  // further from the wanted end than without it
      end = with_next;
    }
    if (index == count) end = parameters.size();
    parts_.push_back({begin, end});
    begin = end;
  }
}

}  // namespace dtrain::parallel
