#include "parallel/gradients/shard_gather.hpp"

#include "parallel/data_types.hpp"

namespace dtrain::parallel {

void ShardGather::gather() {
  std::vector<comm::Handle> gathering;
  for (const Range& all : shared_out_) {
    const Range own = part_of(all.size(), group_.rank(), group_.size());
    const auto values = parameters_.values().narrow(0, all.begin, all.size());
    gathering.push_back(
        group_.all_gather(buffer_of(values.narrow(0, own.begin, own.size())), buffer_of(values)));
  }
  for (const auto& handle : gathering) handle.wait();
}

}  // namespace dtrain::parallel
