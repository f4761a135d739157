#include "models/exported/slicing/head_walk.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

#include "models/exported/operators.hpp"

namespace dtrain::models::exported {
bool HeadWalk::follow(ValueId value, const Place& user) {
  constexpr std::size_t kHeads = 1;
  const auto heads = search_.size(value, kHeads);
  if (!heads) return false;
  nodes_.insert(user);
  const auto before = sources_.size();
  if (!add({value, kHeads, *heads})) return false;
  while (!waiting_.empty()) {
    const Headed one = waiting_.back();
    waiting_.pop_back();
    if (!pass(one)) return false;
  }
  return sources_.size() <= before + 1;  // none where all comes from one that was found before
}

bool HeadWalk::add(const Headed& one) {
  const auto [known, is_new] = walked_.emplace(one.value, one);
  if (!is_new) return known->second == one;
  if (search_.size(one.value, static_cast<int>(one.dim)) != one.heads) return false;
  made_.between.push_back({one.value, one.dim});
  waiting_.push_back(one);
  return true;
}

bool HeadWalk::pass(const Headed& one) {
  const auto place = search_.producer(one.value);
  if (!place) return false;
  nodes_.insert(*place);
  const Node& node = search_.node_at(*place);
  if (calls_one(node, {"cat", "stack"})) return pass_list(one, node);
  const auto self = tensor_of(node, "self");
  if (self && is_reshape(node)) return pass_reshape(one, *place, *self);
  if (self && calls_one(node, {"transpose", "permute", "unbind", "select", "unsqueeze", "squeeze"}))
    return pass_permutation(one, node, *self);
  if (self && calls(node, "expand")) {
    made_.expansions.push_back(*place);
    return search_.dims(*self) == search_.dims(one.value) && add({*self, one.dim, one.heads});
  }
  if (self && calls(node, "repeat_interleave")) {
    const auto times = number_of(node, "repeats").value_or(0);
    const auto dim = dim_of(node, search_.dims(*self), -1);
    const auto* told = node.find("output_size");  // of the whole
    return (told == nullptr || told->kind == Argument::Kind::none) && times > 0 && dim == one.dim &&
           one.heads % times == 0 && add({*self, one.dim, one.heads / times});
  }
  return computes(one, *place, node);
}

/// What puts dims elsewhere, and takes some out.
bool HeadWalk::pass_permutation(const Headed& one, const Node& node, ValueId self) {
  const auto dims = search_.dims(self);
  if (calls(node, "transpose")) {
    const auto a = dim_of(node, dims, 0, "dim0");
    const auto b = dim_of(node, dims, 0, "dim1");
    if (!a || !b) return false;
    return add({self, one.dim == *a ? *b : one.dim == *b ? *a : one.dim, one.heads});
  }
  if (calls(node, "permute")) {
    const auto* order = node.find("dims");
    if (order == nullptr || order->sizes.size() != dims || order->sizes[one.dim].value) return false;
    const auto from = order->sizes[one.dim].number;
    return add({self, static_cast<std::size_t>(from < 0 ? from + static_cast<std::int64_t>(dims) : from),
                one.heads});
  }
  if (calls(node, "unsqueeze")) {
    const auto made = dim_of(node, dims + 1);
    return made && *made != one.dim && add({self, one.dim - (*made < one.dim ? 1 : 0), one.heads});
  }
  const bool takes_out = search_.dims(one.value) + 1 == dims;  // squeeze() may find nothing to do
  if (!takes_out || (calls(node, "squeeze") && node.find("dim") == nullptr)) return false;
  const auto taken = dim_of(node, dims);
  return taken && add({self, one.dim + (*taken <= one.dim ? 1 : 0), one.heads});
}

/// The view of a linear layer's results, one that leaves the heads where they are among the dims before or
/// behind, or one that puts the keys for each query of a group behind one another.
bool HeadWalk::pass_reshape(const Headed& one, const Place& place, ValueId self) {
  made_.reshapes.push_back(place);
  if (const auto source = source_at(one, place, self)) {
    sources_.push_back(*source);
    return true;
  }
  const auto& made = search_.graph()[one.value].tensor->sizes;
  const auto& from = search_.graph()[self].tensor->sizes;
  const auto behind = made.size() - one.dim;  // the heads included
  if (from.size() > one.dim &&
      std::equal(made.begin(), made.end() - static_cast<std::ptrdiff_t>(behind) + 1, from.begin()))
    return add({self, one.dim, one.heads});
  if (from.size() >= behind &&
      std::equal(made.rbegin(), made.rbegin() + static_cast<std::ptrdiff_t>(behind), from.rbegin()))
    return add({self, from.size() - behind, one.heads});
  const auto group = search_.size(self, static_cast<int>(one.dim));
  const auto repeated = search_.size(self, static_cast<int>(one.dim) + 1);
  if (from.size() != made.size() + 1 || !group || !repeated || *group * *repeated != one.heads) return false;
  const auto dim = static_cast<std::ptrdiff_t>(one.dim);
  const bool alike = std::equal(made.begin(), made.begin() + dim, from.begin()) &&
                     std::equal(made.begin() + dim + 1, made.end(), from.begin() + dim + 2);
  return alike && add({self, one.dim, *group});
}

/// [.., heads * width] as [.., heads, width], where several dims may be the width, or lie before the heads.
std::optional<HeadWalk::Source> HeadWalk::source_at(const Headed& one, const Place& place,
                                                    ValueId self) const {
  const auto width = search_.size(self, -1);
  const auto dims = search_.dims(one.value);
  if (!width || search_.dims(self) > 3) return std::nullopt;
  std::int64_t behind = 1;
  std::size_t first = dims;
  for (; first > 0; --first) {
    const auto size = search_.size(one.value, static_cast<int>(first) - 1);
    if (!size || behind * *size > *width) break;
    behind *= *size;
  }
  if (behind == *width && first <= one.dim) {
    std::int64_t parts = 1;
    for (std::size_t dim = first; dim < one.dim; ++dim)
      parts *= *search_.size(one.value, static_cast<int>(dim));
    return Source{.view = place, .made = one, .parts = parts};
  }
  if (one.dim == 1 && dims == 4 && search_.dims(self) == 3)
    return Source{.view = place, .made = one, .of_module = true};
  return std::nullopt;
}

/// cat() or stack() along another dim than that of the heads.
bool HeadWalk::pass_list(const Headed& one, const Node& node) {
  const auto* list = node.find("tensors");
  const auto dim = dim_of(node, search_.dims(one.value));
  if (list == nullptr || !dim || *dim == one.dim) return false;
  const auto before = calls(node, "stack") && *dim < one.dim ? one.dim - 1 : one.dim;
  return std::ranges::all_of(list->values, [&](const std::optional<ValueId>& value) {
    return value && search_.dims(*value) > before && add({*value, before, one.heads});
  });
}

/// Whether what it makes of a head depends on that head alone.
bool HeadWalk::may_compute(const Headed& one, const Node& node) const {
  const auto dims = search_.dims(one.value);
  if (is_copy(node)) return true;
  if (is_split(node) || calls_one(node, {"slice", "narrow"})) {
    const auto dim = dim_of(node, dims);
    return dim && *dim != one.dim;
  }
  if (!has_one_result(node)) return false;
  if (calls(node, "mean")) {
    const auto dim = dim_of(node, dims);
    const auto* keeps = node.find("keepdim");
    return node.find("dim") != nullptr && dim && *dim != one.dim && keeps != nullptr && keeps->booleans.at(0);
  }
  if (calls_one(node, {"layer_norm", "rms_norm"})) {
    const auto* over = node.find("normalized_shape");
    return over != nullptr && over->sizes.size() < dims - one.dim;
  }
  return is_element_wise(node) && !calls(node, "dropout") && !calls(node, "relu_") && !calls(node, "tanh_");
}

bool HeadWalk::computes(const Headed& one, const Place& place, const Node& node) {
  if (!may_compute(one, node)) return false;
  const auto dims = search_.dims(one.value);
  for (const auto& [name, argument] : node.inputs) {
    if (calls(node, "type_as") && name == "other") continue;
    for (const auto& given : argument.values) {
      if (!given) continue;
      if (search_.dims(*given) == dims && search_.size(*given, static_cast<int>(one.dim)) == one.heads) {
        if (!add({*given, one.dim, one.heads})) return false;
      } else if (!search_.is_alike_along(*given, one.dim, dims)) {
        return false;
      } else if (search_.may_be_trained(*given)) {
        made_.beside.push_back({place, *given});
      }
    }
  }
  return true;
}

bool HeadWalk::shares_out() {
  if (sources_.empty()) return false;
  const auto heads = [](const Source& source) { return source.made.heads; };
  made_.groups = std::ranges::min(sources_ | std::views::transform(heads));
  for (const auto& [value, headed] : walked_) {
    if (headed.heads % made_.groups != 0 || !search_.only_users(value, nodes_)) return false;
  }
  // What a node gives beside is cut as well: that must be known.
  for (const Place& place : nodes_) {
    const Node& node = search_.node_at(place);
    for (const auto& output : node.outputs) {
      for (const ValueId value : output.values) {
        const bool is_used = output.kind != Output::Kind::number && !search_.users(value).empty();
        if (output.values.size() > 1 && is_used && !walked_.contains(value)) return false;
      }
    }
  }
  return true;
}

}  // namespace dtrain::models::exported
