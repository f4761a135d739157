#pragma once

#include "models/layer.hpp"

namespace dtrain::models {

/// The mean embedding of a text's real tokens; id 0 is padding, its row starts as zero and stays so. A text
/// without a real token has mean 0. Parameter NAME.weight [rows, columns], from N(0, 1), PyTorch's default.
class EmbeddingBag final : public Layer {
 public:
  /// Only the first `longest` ids of a text are read.
  EmbeddingBag(const std::string& name, std::int64_t rows, std::int64_t columns, std::int64_t longest);

  /// int32 [n, T] -> [n, columns]. Throws Error: exit code 2 for another input, 3 for an id outside the
  /// table.
  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;

  /// Those of an input [n, T] that forward() reads, contiguous: the rows it uses, and id 0.
  at::Tensor ids_read(const at::Tensor& input) const;
  std::int64_t longest() const { return longest_; }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t longest_;
};

}  // namespace dtrain::models
