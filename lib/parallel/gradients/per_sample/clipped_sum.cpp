#include "parallel/gradients/per_sample/clipped_sum.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "kernels/reduce.hpp"
#include "parallel/gradients/squares.hpp"

namespace dtrain::parallel {

ClippedSum::ClippedSum(FlatParameters& parameters, double clip)
    : parameters_(parameters), clip_(clip), values_(at::zeros_like(parameters.values())) {}

void ClippedSum::begin_step() {
  values_.zero_();
  not_finite_ = 0;
}

double ClippedSum::factor(double norm) const {
  // The factor and its products are rounded.
  const double limit = clip_ * (1 - (values_.scalar_type() == at::kDouble ? 0x1p-49 : 0x1p-20));
  return norm > limit ? limit / norm : 1;
}

at::Tensor ClippedSum::factors(const at::Tensor& squares) {
  auto all = at::empty_like(squares);
  const auto* from = squares.const_data_ptr<double>();
  auto* to = all.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < squares.numel(); ++i) {
    const bool finite = std::isfinite(from[i]) && from[i] >= 0;  // of what is below 0 the norm is unknown
    if (!finite) ++not_finite_;
    to[i] = finite ? factor(std::sqrt(from[i])) : 0;
  }
  return all.to(values_.scalar_type());
}

void ClippedSum::take_sample() {
  const at::NoGradGuard no_grad;
  double squares = 0;
  for (const auto& entry : parameters_.entries()) {
    const auto& gradient = entry.parameter->value.grad();
    require(gradient.defined(),
            "gets no gradient from a sample, so that nothing bounds what the sample does to it",
            {.subject = fmt::format("parameter {}", entry.parameter->name),
             .advice = "--freeze it, or train without --dp-clip",
             .code = ExitCode::usage});
    squares += at::sum(at::square(gradient.to(at::kDouble))).item<double>();
  }
  const bool finite = std::isfinite(squares);
  if (!finite) ++not_finite_;
  const double shortened = factor(std::sqrt(squares));
  for (const auto& entry : parameters_.entries()) {
    auto& gradient = entry.parameter->value.mutable_grad();
    if (finite) FlatParameters::view(values_, entry).add_(gradient, shortened);
    gradient.reset();
  }
}

at::Tensor ClippedSum::part_of(const models::Parameter* parameter) {
  const auto& entries = parameters_.entries();
  const auto entry = std::ranges::find(entries, parameter, &FlatParameters::Entry::parameter);
  return entry == entries.end() ? at::Tensor() : FlatParameters::view(values_, *entry);
}

}  // namespace dtrain::parallel
