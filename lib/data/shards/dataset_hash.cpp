#include "data/shards/dataset_hash.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/sha256.hpp"
#include "data/shards/vocabulary_hash.hpp"

namespace dtrain::data {

std::string dataset_hash(const DatasetInfo& info) {
  std::string facts = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n", info.task, fmt::join(info.shape, " "),
                                  fmt::join(info.classes, "\n"), fmt::join(info.mean, " "),
                                  fmt::join(info.std_dev, " "), vocabulary_hash(info));
  for (const InputColumn& column : info.columns) {
    facts += fmt::format("{}\n{}\n{} {} {} {}\n", column.name, column.label, column.marks_gaps,
                         column.filled_with, column.shift, column.scale);
    if (!column.part.empty()) facts += column.part + "\n";
  }
  for (const std::string& target : info.targets) facts += target + "\n";
  for (const TargetScale& target : info.target_scales)
    facts += fmt::format("{} {}\n", target.shift, target.scale);
  if (!info.target_shape.empty()) facts += fmt::format("{}\n", fmt::join(info.target_shape, " "));
  for (const auto& [name, split] : info.splits) {
    facts += fmt::format("{} {}\n", name, split.samples);
    for (const ShardInfo& shard : split.shards) facts += fmt::format("{} {}\n", shard.samples, shard.sha256);
  }
  return sha256_of(facts);
}

}  // namespace dtrain::data
