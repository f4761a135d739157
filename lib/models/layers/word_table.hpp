#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "models/layer.hpp"

namespace dtrain::models {

/// What a model's first layer is besides, where it looks the words of texts up in a large table: the table's
/// gradient can be collected by rows.
class WordTable {
 public:
  virtual ~WordTable() = default;
  /// Null: this layer has none.
  virtual const Parameter* table() const = 0;
  /// The ids of an input [n, T] that forward() reads, int32 and contiguous: the rows it uses, and id 0, which
  /// is padding.
  virtual at::Tensor ids_read(const at::Tensor& input) const = 0;
  /// So many ids of a text at most.
  virtual std::int64_t longest() const = 0;
};

}  // namespace dtrain::models
