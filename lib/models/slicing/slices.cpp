#include "models/slicing/slices.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "core/error.hpp"
#include "models/shape.hpp"

namespace dtrain::models {
namespace {

std::shared_ptr<const HeldSlice> slice_of(const std::string& name, HeldSlice slice) {
  require(slice.part.size() > 0,
          fmt::format("{} cannot be cut into more parts than its {}", name, sliced_extent(slice)),
          {.subject = "--mesh",
           .advice = fmt::format("use tensor={} or fewer", sliced_extent(slice)),
           .code = ExitCode::usage});
  return std::make_shared<const HeldSlice>(std::move(slice));
}

}  // namespace

std::int64_t sliced_extent(const HeldSlice& slice) { return slice.view[static_cast<std::size_t>(slice.dim)]; }

Shape held_shape(const HeldSlice& slice, Range part) {
  // The tensor's own dim that the view's belongs to: as many elements lie before and in it.
  std::int64_t seen = 1;
  for (std::int64_t i = 0; i <= slice.dim; ++i) seen *= slice.view[static_cast<std::size_t>(i)];
  Shape shape = slice.whole;
  std::int64_t own = 1;
  for (auto& extent : shape) {
    own *= extent;
    if (own < seen) continue;
    extent = extent / sliced_extent(slice) * part.size();
    break;
  }
  return shape;
}

Slice rectangle_of(const std::string& name, const HeldSlice& slice) {
  Slice rectangle = Slice::whole(name, slice.whole);
  const auto dim = static_cast<std::size_t>(slice.dim);
  rectangle.offset.at(dim) = slice.part.begin;
  rectangle.extent.at(dim) = slice.part.size();
  return rectangle;
}

void hold_slice(Parameter& parameter, std::int64_t dim, Range part, const Shape& view) {
  const Shape whole = parameter.value.sizes().vec();
  parameter.slice = slice_of(parameter.name,
                             {.whole = whole, .view = view.empty() ? whole : view, .dim = dim, .part = part});
  const auto options = parameter.value.options().requires_grad(false);
  const auto format = parameter.value.suggest_memory_format();
  parameter.value = at::empty(held_shape(*parameter.slice, part), options.memory_format(format))
                        .set_requires_grad(!parameter.frozen);
}

std::vector<Parameter> cut_parameters(std::vector<Parameter>& parameters, std::int64_t kept) {
  auto others = parameters;
  const auto leave = [](Parameter& parameter, Range part) {
    hold_slice(parameter, 0, part);
    HeldSlice slice = *parameter.slice;
    slice.rest = HeldSlice::Rest::in_another_layer;
    parameter.slice = std::make_shared<const HeldSlice>(std::move(slice));
    parameter.slicing = Slicing::none;
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto all = parameters[i].value.size(0);
    leave(parameters[i], {0, kept});
    leave(others[i], {kept, all});
  }
  return others;
}

void hold_slice(Buffer& buffer, Range part) {
  const Shape whole = buffer.value.sizes().vec();
  buffer.slice = slice_of(buffer.name, {.whole = whole, .view = whole, .dim = 0, .part = part});
  buffer.value = buffer.value.narrow(0, part.begin, part.size()).clone();
  if (buffer.step_sum.defined()) buffer.step_sum = at::zeros({1, part.size()}, buffer.step_sum.options());
}

Shape whole_shape(const at::Tensor& value, const std::shared_ptr<const HeldSlice>& slice) {
  return slice != nullptr ? slice->whole : value.sizes().vec();
}

const HeldSlice* group_slice(const std::shared_ptr<const HeldSlice>& slice) {
  return slice != nullptr && slice->is_shared() ? slice.get() : nullptr;
}

double whole_elements(const Parameter& parameter) {
  const HeldSlice* slice = group_slice(parameter.slice);
  return slice != nullptr ? element_count(slice->whole) : static_cast<double>(parameter.value.numel());
}

at::Tensor part_of_whole(const at::Tensor& whole, const HeldSlice& slice, Range part) {
  return whole.view(slice.view).narrow(slice.dim, part.begin, part.size()).reshape(held_shape(slice, part));
}

void put_part(at::Tensor& whole, const HeldSlice& slice, Range part, const at::Tensor& held) {
  at::Tensor place = whole.view(slice.view).narrow(slice.dim, part.begin, part.size());
  place.copy_(held.reshape(place.sizes()));
}

}  // namespace dtrain::models
