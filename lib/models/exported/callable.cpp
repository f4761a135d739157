#include "models/exported/callable.hpp"

#include <algorithm>
#include <array>

#include "models/plugins/load.hpp"

namespace dtrain::models::exported {
namespace {

/// Internals that torch.export leaves in a program, and that check their arguments.
constexpr std::array<std::string_view, 27> kInternals = {
    "_softmax",
    "_log_softmax",
    "_safe_softmax",
    "_masked_softmax",
    "_to_copy",
    "_unsafe_view",
    "_unsafe_index",
    "_weight_norm",
    "_weight_norm_interface",
    "_convolution",
    "_euclidean_dist",
    "_trilinear",
    "_prelu_kernel",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
    "_native_batch_norm_legit_no_training",
    "_pad_circular",
    "_pad_enum",
    "_is_all_true",
    "_is_any_true",
    "_shape_as_tensor",
    "_dim_arange",
};

constexpr std::array<std::string_view, 13> kNamesBegin = {
    "from_file", "fbgemm_",   "mkldnn_",   "cudnn_",  "miopen_", "quantize_",    "quantized_",
    "sparse_",   "to_sparse", "to_mkldnn", "nested_", "resize",  "record_stream"};

bool begins_with_one_of(std::string_view name, const auto& beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view one) { return name.starts_with(one); });
}

/// `_foreach_add`, but not `_foreach_add_`, which returns nothing.
bool is_of_lists(std::string_view name) { return name.starts_with("_foreach_") && !name.ends_with('_'); }

}  // namespace

std::optional<std::string> why_not_callable(std::string_view space, std::string_view name) {
  if (space != "aten") {
    if (is_space_of_plugin(std::string(space))) return std::nullopt;
    return "is neither of PyTorch's own operators nor of a plug-in's";
  }
  const bool internal = name.starts_with('_') && !name.starts_with("__");
  if (internal && std::ranges::find(kInternals, name) == kInternals.end() && !is_of_lists(name))
    return "is one of LibTorch's internal operators";
  if (name.find("backward") != std::string_view::npos) return "is an operator of backward passes";
  if (name == "set" || name == "set_data" || begins_with_one_of(name, kNamesBegin))
    return "is an operator on files, memory or tensors that are not dense";
  return std::nullopt;
}

}  // namespace dtrain::models::exported
