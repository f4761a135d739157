#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

namespace dtrain::comm {

/// Element types that travel. half and bfloat16 are summed in float and rounded once per addition.
enum class DataType : std::uint8_t { float32, float64, bfloat16, float16, int32, int64 };
enum class ReduceOp : std::uint8_t { sum, max, min };
enum class Algorithm : std::uint8_t { automatic, mpi, ring, tree, hierarchical };

std::size_t size_of(DataType type);
std::string_view name_of(DataType type);
std::string_view name_of(ReduceOp op);
std::string_view name_of(Algorithm algorithm);
Algorithm parse_algorithm(std::string_view name);  ///< Throws Error (exit code 2) with the names there are.

/// The type of an element, for the C++ types that have one of their own.
template <typename T>
constexpr DataType data_type_of() {
  if constexpr (std::is_same_v<T, float>)
    return DataType::float32;
  else if constexpr (std::is_same_v<T, double>)
    return DataType::float64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DataType::int32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return DataType::int64;
  else
    static_assert(sizeof(T) == 0, "use Buffer{data, count, type} for 16-bit types");
}

/// Memory that an operation reads or writes: borrowed, and alive until the operation is done.
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;  ///< Elements, not bytes.
  DataType type = DataType::float32;
  /// Keeps the memory: after a failure MPI may use it for longer than the operation lives. Where nothing
  /// does, and the memory is not from allocate(), messages are copied.
  std::shared_ptr<const void> owner = nullptr;

  std::size_t bytes() const { return count * size_of(type); }
  /// `length` elements from the `first`.
  Buffer part(std::size_t first, std::size_t length) const {
    return {static_cast<std::byte*>(data) + first * size_of(type), length, type, owner};
  }
  template <typename T>
  static Buffer of(std::span<T> values) {
    return {values.data(), values.size(), data_type_of<T>()};
  }
};

}  // namespace dtrain::comm
