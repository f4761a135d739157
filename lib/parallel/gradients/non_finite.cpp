#include "parallel/gradients/non_finite.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "core/error.hpp"
#include "parallel/gradients/squares.hpp"

namespace dtrain::parallel {
namespace {

bool holds_non_finite(const GradientOfRank& gradient, const models::Parameter& parameter) {
  if (gradient.rows != nullptr && &gradient.rows->parameter() == &parameter)
    return gradient.rows->squares().non_finite > 0;
  const auto& entries = gradient.parameters.entries();
  const auto entry = std::ranges::find(entries, &parameter, &FlatParameters::Entry::parameter);
  if (entry == entries.end()) return false;
  std::int64_t before = 0;  // elements of the parts before
  return std::ranges::any_of(gradient.own_parts, [&](const Range& part) {
    const std::int64_t first = gradient.holds_parts ? before - part.begin : 0;
    before += part.size();
    const auto begin = std::max(part.begin, entry->offset);
    const auto end = std::min(part.end, entry->offset + entry->count);
    return begin < end && squares_of(gradient.gradients.narrow(0, first + begin, end - begin)).non_finite > 0;
  });
}

/// Calls `visit` with the position of each parameter in the whole model and the parameter.
template <class Visit>
void for_each_parameter(const models::Model& model, const Visit& visit) {
  std::int64_t position = 0;
  for (const auto& layer : model.layers()) {
    for (const auto& parameter : layer->parameters()) visit(position++, parameter);
  }
}

}  // namespace

void report_non_finite(comm::Group& world, const GradientOfRank& gradient, std::int64_t step,
                       const StepTotals& total) {
  std::int64_t last = -1;  // none
  for_each_parameter(gradient.model, [&](std::int64_t position, const models::Parameter& parameter) {
    if (holds_non_finite(gradient, parameter)) last = position;
  });
  world.all_reduce(comm::Buffer::of(std::span(&last, 1)), comm::ReduceOp::max).wait();
  std::string subject = fmt::format("step {}", step);
  for_each_parameter(gradient.model, [&](std::int64_t position, const models::Parameter& parameter) {
    if (position == last) subject += ", " + parameter.name;
  });
  throw Error(
      total.non_finite > 0 ? "the gradient is not finite" : "the loss is not finite",
      {.subject = subject, .advice = "lower --learning-rate, or limit the gradient with --grad-clip"});
}

}  // namespace dtrain::parallel
