#pragma once

#include "models/compute/row_gradients.hpp"
#include "models/layer.hpp"
#include "models/layers/word_table.hpp"

namespace dtrain::models {

/// The mean embedding of a text's real tokens; id 0 is padding, its row starts as zero and stays so. A text
/// without a real token has mean 0. Parameter NAME.weight [rows, columns], from N(0, 1), PyTorch's default.
class EmbeddingBag final : public Layer, public WordTable {
 public:
  /// Only the first `longest` ids of a text are read.
  EmbeddingBag(const std::string& name, std::int64_t rows, std::int64_t columns, std::int64_t longest);

  /// int32 [n, T] -> [n, columns]. Throws Error: exit code 2 for another input, 3 for an id outside the
  /// table.
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;

  const Parameter* table() const override { return &parameters_[0]; }
  at::Tensor ids_read(const at::Tensor& input) const override;
  std::int64_t longest() const override { return longest_; }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t longest_;
};

/// The operation: [n, columns] from `ids`, int32 [n, T], contiguous, in the CPU's memory, and the table
/// `weight` [rows, columns]. `rows`: where the gradient goes by rows, borrowed until backward; null: into
/// .grad, dense. `name`: of the layer, for messages. Throws Error (exit code 3) for an id outside the table.
at::Tensor bag_means(const at::Tensor& ids, const at::Tensor& weight, RowGradients* rows,
                     const std::string& name);

}  // namespace dtrain::models
