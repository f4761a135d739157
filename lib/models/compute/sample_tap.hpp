#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/layer.hpp"

namespace dtrain::models {

/// One use of a parameter in a forward pass, from which each sample's own gradient of it follows. Dim 0 of
/// what goes in and comes back counts samples, the first ones first, each with as many rows; or `samples`
/// says which sample each row belongs to.
struct ParameterUse {
  enum class Kind {
    product,      ///< x W^T, x [rows, ..., in] being `input`; `swapped`: x W.
    lookup,       ///< Rows of a table; `input`: ids [rows, ...], int64; id `padding` is given no gradient.
    scale,        ///< input * W, W in the shape `shape`, broadcast over the output's.
    shift,        ///< ... + W, likewise.
    convolution,  ///< Of `input`, with `convolved`.
  };
  struct Convolution {
    std::vector<std::int64_t> stride, padding, dilation, output_padding;
    std::int64_t groups = 1;
    bool transposed = false;
  };

  Kind kind = Kind::product;
  Parameter* parameter = nullptr;
  at::Tensor input = {};
  at::Tensor gradient = {};  ///< Of the output; undefined until backward, and where none came back.
  bool swapped = false;
  std::int64_t padding = -1;
  Shape shape = {};
  Convolution convolved = {};
  at::Tensor samples = {};   ///< int64 [rows]; undefined: see above.
  std::int64_t version = 0;  ///< Of `input` when it was taken down: it must not be written to.
};

/// Takes down how the layers of one micro-batch use parameters, instead of adding up their gradients over the
/// samples: backward leaves no .grad, but the gradients of the operations' outputs. The functions below do
/// so wherever a tap is open in their thread and gradients are on; else they are the plain operations.
/// Source: Goodfellow 2015 (arXiv:1510.01799), as the rules of parallel/gradients/per_sample, which read it.
class SampleTap {
 public:
  /// Of these parameters, those that are not frozen. They must stay where they are.
  explicit SampleTap(const std::vector<Parameter*>& parameters) : parameters_(parameters) {}

  /// While it lives, the forward passes of this thread go through the tap.
  class Scope {
   public:
    explicit Scope(SampleTap& tap);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    SampleTap* before_;
  };

  /// While it lives, rows are packed: `samples`, int64 [rows], says whose each one is.
  class PackedRows {
   public:
    explicit PackedRows(const at::Tensor& samples);
    ~PackedRows();
    PackedRows(const PackedRows&) = delete;
    PackedRows& operator=(const PackedRows&) = delete;

   private:
    SampleTap* tap_;
  };

  /// The tap that is open here; null: none, or no gradients are computed.
  static SampleTap* open();

  /// The parameter that a tensor is, as long as it is trained. Null: another tensor.
  Parameter* parameter_of(const at::Tensor& tensor) const;

  /// Takes down the uses that `output` follows from. Returns the output to go on with.
  at::Tensor take(at::Tensor output, std::vector<ParameterUse> uses);
  /// The same of an operation that fills in `input` and `gradient` itself, in backward.
  std::shared_ptr<ParameterUse> expect(ParameterUse use);
  /// Keeps what a node of the graph refers to, until forget().
  void keep(std::shared_ptr<const void> owned) { kept_.push_back(std::move(owned)); }

  const std::vector<std::shared_ptr<ParameterUse>>& uses() const { return uses_; }
  void forget() {
    uses_.clear();
    kept_.clear();
  }

 private:
  std::vector<Parameter*> parameters_;
  std::vector<std::shared_ptr<ParameterUse>> uses_;
  std::vector<std::shared_ptr<const void>> kept_;
  at::Tensor samples_;
};

/// What a layer is besides, of whose every use of a parameter a tap learns.
class SampleTapped {
 public:
  virtual ~SampleTapped() = default;
  /// Empty: no sample changes what the layer computes for another one, and each use of a parameter goes
  /// through the functions below. Else why not.
  virtual std::string sample_obstacle() const { return {}; }
};

/// at::linear. `bias` may be undefined.
at::Tensor tapped_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias);
/// input W, W [in, out] a parameter.
at::Tensor tapped_product(const at::Tensor& input, const at::Tensor& weight);
/// at::embedding; `padding`: the id that is given no gradient, -1: none.
at::Tensor tapped_embedding(const at::Tensor& table, const at::Tensor& ids, std::int64_t padding = -1);
/// at::layer_norm over the dims of `shape`; weight and bias may be undefined.
at::Tensor tapped_layer_norm(const at::Tensor& input, at::IntArrayRef shape, const at::Tensor& weight,
                             const at::Tensor& bias, double eps);
/// at::group_norm, likewise.
at::Tensor tapped_group_norm(const at::Tensor& input, std::int64_t groups, const at::Tensor& weight,
                             const at::Tensor& bias, double eps);
/// input + values and input * values, `values` being broadcast; its dims are those of a whole parameter, or
/// of a parameter's first rows.
at::Tensor tapped_sum(const at::Tensor& input, const at::Tensor& parameter, std::int64_t rows = -1);
at::Tensor tapped_scaled(const at::Tensor& input, const at::Tensor& parameter);
/// at::convolution.
at::Tensor tapped_convolution(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                              const ParameterUse::Convolution& how);

}  // namespace dtrain::models
