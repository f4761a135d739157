#include "data/shards/array.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

namespace dtrain::data {
namespace {

constexpr std::size_t kArrayAlignment = 64;  // a cache line, and any vector register
constexpr std::int64_t kMostElements = std::numeric_limits<std::int64_t>::max() / 8;  // of 8 bytes each

}  // namespace

ElementType conversion_for(bool floating, std::span<const ElementType> accepted) {
  const ElementType wanted = floating ? ElementType::float32 : ElementType::int64;
  return std::find(accepted.begin(), accepted.end(), wanted) != accepted.end() ? wanted : accepted.front();
}

std::int64_t element_count(std::span<const std::int64_t> shape) {
  std::int64_t count = 1;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  for (const std::int64_t extent : shape)
    count = count > kMostElements / extent ? kMostElements : count * extent;
  return count;
}

Allocator aligned_allocator() {
  return {.allocate =
              [](std::size_t bytes) {
                const std::size_t rounded = (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
                void* data = std::aligned_alloc(kArrayAlignment, rounded);
                if (data == nullptr) throw std::bad_alloc();
                return data;
              },
          .release = [](void* data, std::size_t) { std::free(data); }};
}

HostArray::HostArray(Allocator allocator)
    : allocator_(allocator.allocate ? std::move(allocator) : aligned_allocator()) {}

HostArray::~HostArray() {
  if (data_ != nullptr) allocator_.release(data_, capacity_);
}

void HostArray::reset(ElementType type, std::span<const std::int64_t> shape) {
  type_ = type;
  shape_.assign(shape.begin(), shape.end());
  const std::size_t needed = bytes();
  if (needed <= capacity_) return;
  void* larger = allocator_.allocate(needed);
  if (data_ != nullptr) allocator_.release(data_, capacity_);
  data_ = larger;
  capacity_ = needed;
}

void HostArray::swap(HostArray& other) noexcept {
  std::swap(allocator_, other.allocator_);
  std::swap(data_, other.data_);
  std::swap(capacity_, other.capacity_);
  std::swap(type_, other.type_);
  shape_.swap(other.shape_);
}

}  // namespace dtrain::data
