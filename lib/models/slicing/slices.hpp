#pragma once

#include <string>
#include <vector>

#include "core/slice.hpp"
#include "models/layer.hpp"

namespace dtrain::models {

/// Leaves `parameter`, which is whole, elements `part` along `dim` of itself seen in the shape `view` (empty:
/// its own), whose dims are those of the parameter or parts of one. Its value becomes memory of that part's
/// size. Every rank's part is part_of() the dim. Throws Error (exit code 2) for an empty part: more ranks
/// than elements.
void hold_slice(Parameter& parameter, std::int64_t dim, Range part, const Shape& view = {});
/// Shares out dim 0 of the parameters of a layer, which are whole, between it and another one: these become
/// the first `kept` elements, and those that are returned the others.
std::vector<Parameter> cut_parameters(std::vector<Parameter>& parameters, std::int64_t kept);
/// The same of a buffer of one dim.
void hold_slice(Buffer& buffer, Range part);

/// The whole tensor's shape of what may be sliced.
Shape whole_shape(const at::Tensor& value, const std::shared_ptr<const HeldSlice>& slice);

/// What a tensor group has put together of `slice`: nullptr where this rank holds all of its layer's tensor,
/// whole or with the rest in another layer.
const HeldSlice* group_slice(const std::shared_ptr<const HeldSlice>& slice);

/// Elements of the parameter that all ranks of a tensor group hold together.
double whole_elements(const Parameter& parameter);

/// Elements `part` of `whole`, which has the shape slice.whole: contiguous, in the shape that a rank holds.
at::Tensor part_of_whole(const at::Tensor& whole, const HeldSlice& slice, Range part);
/// Writes them back: `held` is what the rank of `part` holds. `whole` must be contiguous.
void put_part(at::Tensor& whole, const HeldSlice& slice, Range part, const at::Tensor& held);

/// What a parameter of a layer in two (cut_parameters()) is of the tensor called `name`.
Slice rectangle_of(const std::string& name, const HeldSlice& slice);

/// Elements along the sliced dim of the whole tensor.
std::int64_t sliced_extent(const HeldSlice& slice);

/// The shape of what the rank of `part` holds.
Shape held_shape(const HeldSlice& slice, Range part);

}  // namespace dtrain::models
