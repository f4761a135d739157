#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/element_type.hpp"

namespace dtrain::data {

using dtrain::ElementType;  // datasets store uint8, int32, int64 and float32

/// What numbers of a type that is not accepted become: floats float32 and integers int64 where that is
/// accepted, otherwise the first of `accepted`.
ElementType conversion_for(bool floating, std::span<const ElementType> accepted);

/// The product of `shape`; 1 for a scalar. 2^60 - 1 where it would be more, as in a damaged header.
std::int64_t element_count(std::span<const std::int64_t> shape);

/// Where batches live. GPU ranks hand in one that allocates pinned memory; both functions are set or neither.
struct Allocator {
  std::function<void*(std::size_t bytes)> allocate;  ///< At least 64-byte aligned; throws, never null.
  std::function<void(void* data, std::size_t bytes)> release;  ///< Takes what allocate gave, with its size.
};

/// Ordinary memory, aligned to 64 bytes.
Allocator aligned_allocator();

/// A dense row-major array in host memory that keeps its storage when it is reset to something smaller, so
/// that a loader's buffers are allocated once. Move-only.
class HostArray {
 public:
  HostArray() : HostArray(aligned_allocator()) {}
  explicit HostArray(Allocator allocator);
  HostArray(HostArray&& other) noexcept { swap(other); }
  HostArray& operator=(HostArray&& other) noexcept {
    HostArray(std::move(other)).swap(*this);
    return *this;
  }
  ~HostArray();

  /// Gives the array this type and shape. The contents are undefined afterwards.
  void reset(ElementType type, std::span<const std::int64_t> shape);
  void reset(ElementType type, std::initializer_list<std::int64_t> shape) {
    reset(type, std::span<const std::int64_t>(shape.begin(), shape.size()));
  }

  void* data() noexcept { return data_; }  ///< May be null while bytes() is 0.
  const void* data() const noexcept { return data_; }
  ElementType type() const noexcept { return type_; }
  const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  std::int64_t count() const { return element_count(shape_); }  ///< Elements.
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * element_bytes(type_); }

  /// The elements; T must be the C++ type of type().
  template <typename T>
  std::span<T> as() {
    return {static_cast<T*>(data_), static_cast<std::size_t>(count())};
  }
  template <typename T>
  std::span<const T> as() const {
    return {static_cast<const T*>(data_), static_cast<std::size_t>(count())};
  }

 private:
  void swap(HostArray& other) noexcept;
  Allocator allocator_;
  void* data_ = nullptr;
  std::size_t capacity_ = 0;  // bytes
  ElementType type_ = ElementType::uint8;
  std::vector<std::int64_t> shape_ = {0};
};

}  // namespace dtrain::data
