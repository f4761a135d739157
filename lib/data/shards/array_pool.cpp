#include "data/shards/array_pool.hpp"

#include <utility>

namespace dtrain::data {

ArrayPool::ArrayPool(Allocator allocator)
    : allocator_(std::move(allocator)), idle_(std::make_shared<Idle>()) {}

std::shared_ptr<HostArray> ArrayPool::take() {
  std::unique_ptr<HostArray> array;
  {
    const std::lock_guard lock(idle_->mutex);
    if (idle_->arrays.empty()) {
      idle_->arrays.reserve(++idle_->made);  // so that an array comes back without an allocation
    } else {
      array = std::move(idle_->arrays.back());  // the one used last: its memory is warm
      idle_->arrays.pop_back();
    }
  }
  if (array == nullptr) array = std::make_unique<HostArray>(allocator_);
  return {array.release(), [home = std::weak_ptr<Idle>(idle_)](HostArray* released) {
            std::unique_ptr<HostArray> back(released);
            if (const auto idle = home.lock()) {
              const std::lock_guard lock(idle->mutex);
              idle->arrays.push_back(std::move(back));
            }
          }};
}

}  // namespace dtrain::data
