#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "data/shards/array.hpp"

namespace dtrain::data {

/// Arrays that are allocated once and filled again and again: an array is filled again only when nothing
/// refers to it any more.
class ArrayPool {
 public:
  /// `allocator` outlives the arrays; empty: aligned_allocator().
  explicit ArrayPool(Allocator allocator = {});

  /// An array to fill, with undefined type, shape and contents. It comes back when the last pointer to it is
  /// gone, or is freed then if the pool is gone. Pointers may be dropped on any thread.
  std::shared_ptr<HostArray> take();

 private:
  struct Idle {
    std::mutex mutex;
    std::vector<std::unique_ptr<HostArray>> arrays;
    std::size_t made = 0;
  };
  Allocator allocator_;
  std::shared_ptr<Idle> idle_;
};

}  // namespace dtrain::data
