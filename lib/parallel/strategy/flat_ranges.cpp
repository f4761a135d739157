#include "parallel/strategy/flat_ranges.hpp"

#include <algorithm>

namespace dtrain::parallel {

std::vector<optim::ParameterRange> update_ranges(const StrategyParts& parts, const FlatParameters& parameters,
                                                 const models::Parameter* left_out) {
  std::vector<optim::ParameterRange> ranges;
  for (const auto& entry : parameters.entries()) {
    if (entry.parameter == left_out) continue;
    const bool spared = parts.decays_matrices_only && entry.parameter->value.dim() < 2;
    ranges.push_back({.begin = entry.offset,
                      .end = entry.offset + entry.count,
                      .weight_decay = spared ? 0.0 : parts.setting.optimizer.weight_decay});
  }
  return ranges;
}

std::vector<Range> counted_parts(const StrategyParts& parts, const FlatParameters& parameters,
                                 std::span<const Range> held) {
  if (parts.counts_common) return {held.begin(), held.end()};
  std::vector<Range> counted;
  for (const auto& entry : parameters.entries()) {
    if (entry.parameter->slice == nullptr) continue;
    for (const auto& part : held) {
      const Range common{std::max(part.begin, entry.offset), std::min(part.end, entry.offset + entry.count)};
      if (common.size() > 0) counted.push_back(common);
    }
  }
  return counted;
}

std::vector<Range> counted_in_shard(const StrategyParts& parts, const FlatParameters& parameters,
                                    std::span<const Range> held) {
  const auto* const across = parts.data_across;  // whose ranks have the same shard
  std::vector<Range> counted;
  std::int64_t before = 0;  // elements of the parts before
  for (const auto& part : held) {
    for (const auto& of_part : counted_parts(parts, parameters, {&part, 1})) {
      const auto own = across == nullptr ? Range{0, of_part.size()}
                                         : part_of(of_part.size(), across->rank(), across->size());
      const auto begin = before + of_part.begin - part.begin;
      counted.push_back({begin + own.begin, begin + own.end});
    }
    before += part.size();
  }
  return counted;
}

}  // namespace dtrain::parallel
