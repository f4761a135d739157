#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.hpp"

namespace dtrain::parallel {

/// All values of a model that are trained in one block of memory, last layer first: the order in which
/// gradients become ready, so that a gradient bucket and an optimizer's range are plain sub-ranges. What a
/// library wants in another order (Parameter::before_next) becomes ready at once.
///
/// The constructor moves every Parameter's value into the block (its storage becomes a view, strides kept)
/// and converts it to `dtype`. Each parameter starts at a multiple of kAlignment elements; the gaps hold
/// zeros. Must not outlive the model.
class FlatParameters {
 public:
  static constexpr std::int64_t kAlignment = 64;  ///< Elements.

  /// Where one parameter lies in the block.
  struct Entry {
    models::Parameter* parameter = nullptr;
    std::int64_t offset = 0;  ///< Elements from the start of the block.
    std::int64_t count = 0;   ///< Elements, the gap behind it not counted.
  };

  /// Whether the model's values are put into the block, or those that are already there are taken: by the
  /// ranks that share the block with one that fills it. elsewhere: the parameters are laid out only; values()
  /// may be replaced by what this rank holds of them.
  enum class Values { put, take, elsewhere };

  FlatParameters(models::Model& model, at::ScalarType dtype);
  /// In `block` [size_of(model)], which also gives the dtype; with Values::elsewhere of any size.
  FlatParameters(models::Model& model, at::Tensor block, Values values);

  /// Elements that the model's block has, gaps included: at least one gap.
  static std::int64_t size_of(models::Model& model);

  const std::vector<Entry>& entries() const { return entries_; }
  std::int64_t size() const { return size_; }  ///< Elements, gaps included.
  at::ScalarType dtype() const { return values_.scalar_type(); }
  at::Tensor& values() { return values_; }  ///< [size()] or what is held of it, no gradient.
  const at::Tensor& values() const { return values_; }

  /// Where the parameter ends, the gap behind it included.
  static std::int64_t end_of(const Entry& entry);

  /// The part of `flat` [size()] that belongs to `entry`, in the parameter's shape and strides.
  static at::Tensor view(const at::Tensor& flat, const Entry& entry);

  /// A 64-bit fingerprint of names, shapes and offsets: equal on all ranks, or their buckets do not match.
  std::uint64_t layout_hash() const;

 private:
  std::vector<Entry> entries_;
  at::Tensor values_;
  std::int64_t size_ = 0;
};

}  // namespace dtrain::parallel
