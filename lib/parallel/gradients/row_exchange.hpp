#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/group.hpp"
#include "models/compute/row_gradients.hpp"

namespace dtrain::parallel {

/// What a step brings at most, on every rank, so that the memory is laid out once.
struct RowLimits {
  std::int64_t samples = 0;  ///< Of one rank.
  std::int64_t tokens = 0;   ///< Of one sample.
};

/// The factors of a table's gradient, from all ranks to all: each sample's ids and its gradient. On one node
/// they are written to memory that all ranks see and stay there; otherwise they are gathered.
class RowExchange {
 public:
  /// Collective and blocking. `columns`: of the table; `dtype`: of its gradient.
  RowExchange(comm::Group& group, const RowLimits& limits, std::int64_t columns, at::ScalarType dtype);

  /// Tells everybody the ids of this rank's samples, int32 [n, T] per piece; id 0 is padding and stays here.
  /// Collective. Throws Error when there are more than the limits say.
  void share_ids(const std::vector<at::Tensor>& pieces);

  /// Tells everybody their gradients, scaled; the pieces of share_ids, in its order. Collective.
  void share_gradients(const models::RowGradients& pieces);

  std::int64_t samples(int rank) const;
  /// The real ids of one sample.
  std::span<const std::int32_t> ids(int rank, std::int64_t sample) const;
  /// [columns]
  template <class T>
  const T* gradient(int rank, std::int64_t sample) const {
    return static_cast<const T*>(gradients_.whole) + (rank * limits_.samples + sample) * columns_;
  }

 private:
  /// A block per rank, of which a rank writes its own and reads all.
  struct Blocks {
    std::unique_ptr<comm::SharedBuffer> common;  // null: gathered
    std::vector<std::byte> gathered;
    std::vector<std::byte> sent;
    void* whole = nullptr;
    void* own = nullptr;
    std::size_t block_bytes = 0;
  };
  Blocks make_blocks(std::size_t bytes);
  void publish(Blocks& blocks);
  const std::int32_t* ids_of(int rank) const;

  comm::Group& group_;
  RowLimits limits_;
  std::int64_t columns_;
  Blocks ids_;  // samples, begins [samples + 1], ids
  Blocks gradients_;
};

}  // namespace dtrain::parallel
