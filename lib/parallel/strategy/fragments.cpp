#include "parallel/strategy/fragments.hpp"

#include "models/slicing/slices.hpp"

namespace dtrain::parallel {
namespace {

/// With the gap behind it; of a tensor that a tensor group shares, what all of it would take.
std::int64_t whole_size(const FlatParameters::Entry& entry) {
  const auto count = static_cast<std::int64_t>(models::whole_elements(*entry.parameter));
  return FlatParameters::end_of({.parameter = entry.parameter, .offset = 0, .count = count});
}

}  // namespace

Fragments::Fragments(const FlatParameters& parameters, int count) {
  // By whole tensors: the ranks of a tensor group end a part at the same one, whatever each holds of it.
  std::int64_t all = 0;
  for (const auto& entry : parameters.entries()) all += whole_size(entry);
  std::int64_t begin = 0;
  std::int64_t counted = 0;  // of the tensors so far
  auto next = parameters.entries().begin();
  for (int index = 1; index <= count; ++index) {
    const auto wanted = part_of(all, index, count).begin;
    std::int64_t end = begin;
    for (; next != parameters.entries().end(); ++next) {
      const auto with_next = counted + whole_size(*next);
      if (with_next - wanted > wanted - counted) break;  // further from the wanted end than without it
      counted = with_next;
      end = FlatParameters::end_of(*next);
    }
    if (index == count) end = parameters.size();
    parts_.push_back({begin, end});
    begin = end;
  }
}

}  // namespace dtrain::parallel
