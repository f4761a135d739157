#include "parallel/gradients/reproducible_totals.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "models/slicing/slices.hpp"
#include "parallel/gradients/squares.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 16;  // elements

std::size_t blocks_of(std::int64_t elements) {
  return static_cast<std::size_t>((elements + kBlock - 1) / kBlock);
}

double sum(std::span<const double> values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

ReproducibleTotals::ReproducibleTotals(models::Model& model, const FlatParameters& parameters,
                                       comm::Group& world, comm::Group& data, int micro_batches,
                                       bool counts_common)
    : world_(world), data_(data), micro_batches_(static_cast<std::size_t>(micro_batches)) {
  const auto blocks = give_places(model, parameters, counts_common);
  const auto count = 2 * micro_batches_ + blocks;
  memory_ = world.allocate(count * sizeof(double));
  const std::span<double> all(static_cast<double*>(memory_->data()), count);
  losses_ = all.subspan(0, micro_batches_);
  weights_ = all.subspan(micro_batches_, micro_batches_);
  squares_ = all.subspan(2 * micro_batches_);
}

// Places are given to all parameters of the whole model, so that every stage of a pipeline means the same.
std::size_t ReproducibleTotals::give_places(models::Model& model, const FlatParameters& parameters,
                                            bool counts_common) {
  std::size_t next = 0;
  for (const auto& layer : model.layers()) {
    for (const auto& parameter : layer->parameters()) {
      const auto shape = models::whole_shape(parameter.value, parameter.slice);
      const auto first = next;
      next += blocks_of(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
      const auto entry =
          std::ranges::find(parameters.entries(), &parameter, &FlatParameters::Entry::parameter);
      if (entry == parameters.entries().end() || (parameter.slice == nullptr && !counts_common)) continue;
      for (std::size_t b = 0; b < blocks_of(entry->count); ++b) {
        const auto begin = static_cast<std::int64_t>(b) * kBlock;
        const Range part{entry->offset + begin, entry->offset + std::min(begin + kBlock, entry->count)};
        if ((first + b) % static_cast<std::size_t>(data_.size()) == static_cast<std::size_t>(data_.rank())) {
          blocks_.push_back(part);
          places_.push_back(first + b);
        }
      }
    }
  }
  return next;
}

void ReproducibleTotals::begin_step() {
  for (const auto& values : {losses_, weights_, squares_}) std::ranges::fill(values, 0.0);
}

void ReproducibleTotals::add_micro_batch(int index, double loss, double weight) {
  losses_[static_cast<std::size_t>(index)] += loss;
  weights_[static_cast<std::size_t>(index)] += weight;
}

std::int64_t ReproducibleTotals::add_gradients(const at::Tensor& gradients) {
  std::int64_t non_finite = 0;
  const auto of_blocks = squares_of(gradients, blocks_);
  for (std::size_t b = 0; b < of_blocks.size(); ++b) {
    squares_[places_[b]] = of_blocks[b].sum;
    non_finite += of_blocks[b].non_finite;
  }
  return non_finite;
}

void ReproducibleTotals::complete(StepTotals& total) {
  const std::span<double> all(losses_.data(), losses_.size() + weights_.size() + squares_.size());
  world_.all_reduce(comm::Buffer::of(all), comm::ReduceOp::sum).wait();
  total.loss = sum(losses_);
  total.weight = sum(weights_);
  total.gradient_squares = sum(squares_);
}

}  // namespace dtrain::parallel
