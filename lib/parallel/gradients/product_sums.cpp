#include "parallel/gradients/product_sums.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "kernels/small_gemm.hpp"
#include "models/layers/activation.hpp"
#include "models/layers/flatten.hpp"
#include "models/layers/linear.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::size_t kLineBytes = 64;  // of the processor's cache

std::size_t in_lines(std::size_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

std::int64_t most_samples(const LargestStep& step) {
  return (step.samples + step.micro_batches - 1) / step.micro_batches;
}

std::int64_t places_of(const LargestStep& step) { return step.micro_batches * most_samples(step); }

std::size_t bytes_of_places(const LargestStep& step, std::int64_t width, std::size_t element_bytes) {
  return in_lines(static_cast<std::size_t>(places_of(step) * width) * element_bytes);
}

/// What one rank tells of a step.
std::size_t bytes_told(const LargestStep& step) {
  return in_lines(static_cast<std::size_t>(1 + 2 * step.micro_batches) * sizeof(std::int64_t));
}

std::int64_t width_of(const TrainedProduct& product) {
  return product.weight->value.size(0) + product.weight->value.size(1);
}

void copy_rows(const at::Tensor& places, std::int64_t first, const at::Tensor& rows) {
  std::memcpy(static_cast<std::byte*>(places.data_ptr()) +
                  static_cast<std::size_t>(first * places.size(1)) * places.element_size(),
              rows.const_data_ptr(), rows.nbytes());
}

bool all_agree(comm::Group& group, bool wanted) {
  int value = wanted ? 1 : 0;
  group.all_reduce(comm::Buffer::of(std::span(&value, 1)), comm::ReduceOp::min).wait();
  return value == 1;
}

std::int64_t offset_of(const FlatParameters& parameters, const models::Parameter* parameter) {
  const auto& entries = parameters.entries();
  const auto entry = std::ranges::find(entries, parameter, &FlatParameters::Entry::parameter);
  require(entry != entries.end(), "has no place among the flat parameters", {.subject = parameter->name});
  return entry->offset;
}

}  // namespace

std::vector<TrainedProduct> trained_products(const models::Model& model) {
  std::vector<TrainedProduct> products;
  const auto& layers = model.layers();
  // It gives one row per sample, and the others keep that.
  if (layers.empty() || dynamic_cast<const models::Flatten*>(layers.front().get()) == nullptr) return {};
  for (const auto& layer : layers) {
    if (dynamic_cast<const models::Linear*>(layer.get()) != nullptr) {
      auto& parameters = layer->parameters();
      const auto frozen = std::ranges::count_if(parameters, &models::Parameter::frozen);
      if (frozen == 0) products.push_back({&parameters.at(0), &parameters.at(1)});
      if (frozen == 1) return {};
    } else if (!layer->parameters().empty()) {
      return {};
    }
  }
  return products;
}

std::int64_t ProductSums::factor_elements(const std::vector<TrainedProduct>& products,
                                          const LargestStep& step) {
  std::int64_t factors = 0;
  std::int64_t weights = 0;
  for (const auto& product : products) {
    factors += places_of(step) * width_of(product);
    weights += product.weight->value.numel();
  }
  return factors <= weights ? factors : 0;
}

bool ProductSums::pays(const std::vector<TrainedProduct>& products, const LargestStep& step) {
  return kernels::has_small_gemm() && at::get_num_threads() == 1 && factor_elements(products, step) > 0;
}

std::size_t ProductSums::bytes_for(const std::vector<TrainedProduct>& products, const LargestStep& step,
                                   int ranks) {
  std::size_t bytes = static_cast<std::size_t>(ranks) * bytes_told(step);
  for (const auto& product : products) {
    const at::Tensor& weight = product.weight->value;
    for (const auto width : weight.sizes()) bytes += bytes_of_places(step, width, weight.element_size());
  }
  return bytes;
}

std::unique_ptr<ProductSums> ProductSums::make(FlatParameters& parameters,
                                               const std::vector<TrainedProduct>& products,
                                               comm::Group& group, const LargestStep& step, SpanSink& sink,
                                               bool wanted) {
  if (!all_agree(group, wanted)) return nullptr;
  const auto bytes = bytes_for(products, step, group.size());
  auto memory = group.size() == 1 ? group.allocate(bytes) : group.allocate_common(bytes);
  if (memory == nullptr) return nullptr;
  return std::unique_ptr<ProductSums>(
      new ProductSums(parameters, products, group, step, sink, std::move(memory)));
}

ProductSums::Product::Product(const TrainedProduct& trained, const FlatParameters& parameters)
    : weight(trained.weight),
      weight_offset(offset_of(parameters, trained.weight)),
      bias_offset(offset_of(parameters, trained.bias)),
      in(trained.weight->value.size(1)),
      out(trained.weight->value.size(0)) {}

ProductSums::ProductSums(FlatParameters& parameters, const std::vector<TrainedProduct>& products,
                         comm::Group& group, const LargestStep& step, SpanSink& sink,
                         std::unique_ptr<comm::SharedBuffer> memory)
    : group_(group),
      step_(step),
      sink_(sink),
      most_(most_samples(step)),
      memory_(std::move(memory)),
      charge_(static_cast<std::int64_t>(bytes_for(products, step, group.size())) / group.size()),
      gradients_(at::zeros({parameters.size()}, parameters.values().options().requires_grad(false))),
      entries_(parameters.entries()) {
  require(entries_.size() == 2 * products.size(), "its model trains more than linear layers",
          {.subject = "sums of products", .advice = "report this as a bug"});
  auto* next =
      static_cast<std::byte*>(memory_->data()) + static_cast<std::size_t>(group.size()) * bytes_told(step);
  const auto take = [&](std::int64_t width) {
    const auto options = gradients_.options();
    const at::Tensor places = at::from_blob(next, {places_of(step), width}, options);
    next += bytes_of_places(step, width, gradients_.element_size());
    return places;
  };
  for (const auto& trained : products) {
    Product product(trained, parameters);
    product.inputs = take(product.in);
    product.output_gradients = take(product.out);
    products_.push_back(std::move(product));
  }
  for (auto& product : products_) places_.emplace_back(*product.weight, product.given);
  choose_parts(parameters);
}

/// Each rank has the same rows of a weight and of its bias. What lies behind a parameter goes to the last
/// rank.
void ProductSums::choose_parts(const FlatParameters& parameters) {
  for (const auto& entry : parameters.entries()) {
    const std::int64_t rows = entry.parameter->value.size(0);
    const std::int64_t columns = entry.count / rows;
    const auto own = part_of(rows, group_.rank(), group_.size());
    const bool is_last = group_.rank() + 1 == group_.size();
    update_parts_.push_back({entry.offset + own.begin * columns,
                             is_last ? FlatParameters::end_of(entry) : entry.offset + own.end * columns});
  }
}

std::vector<Range> ProductSums::shared_out() const {
  std::vector<Range> all;
  for (const auto& entry : entries_) all.push_back({entry.offset, FlatParameters::end_of(entry)});
  return all;
}

std::int64_t* ProductSums::told_by(int rank) const {
  auto* const begin = static_cast<std::byte*>(memory_->data());
  return reinterpret_cast<std::int64_t*>(begin + static_cast<std::size_t>(rank) * bytes_told(step_));
}

/// No rank reads what was told of the last step any more: all have come to its end.
void ProductSums::begin_step(int micro_batches) {
  micro_batches_ = micro_batches;
  *told_by(group_.rank()) = 0;
  for (auto& product : products_) product.given = {};
}

void ProductSums::taken_back(int index) {
  const std::int64_t samples =
      products_.front().given.input.defined() ? products_.front().given.input.size(0) : 0;
  require(index < step_.micro_batches && samples > 0 && samples <= most_, "is not as the step was planned",
          {.subject = "a micro-batch", .advice = "report this as a bug"});
  for (auto& product : products_) {
    auto& [input, output_gradient] = product.given;
    require(input.defined() && input.size(0) == samples, "has left no factors of its gradient",
            {.subject = product.weight->name, .advice = "report this as a bug"});
    copy_rows(product.inputs, index * most_, input);
    copy_rows(product.output_gradients, index * most_, output_gradient);
    product.given = {};
  }
  std::int64_t* const told = told_by(group_.rank());
  std::int64_t* const next = told + 1 + 2 * *told;
  next[0] = index;
  next[1] = samples;
  ++*told;
}

void ProductSums::expect_share(const models::Parameter* parameter) {
  throw Error("is of one rank's layers", {.subject = parameter->name, .advice = "report this as a bug"});
}

void ProductSums::add_share(const models::Parameter* parameter, const at::Tensor& /*gradient*/) {
  expect_share(parameter);
}

void ProductSums::finish(const std::function<void()>& exchange_shares) {
  if (exchange_shares) exchange_shares();  // it has none
  require(*told_by(group_.rank()) == micro_batches_, "has micro-batches that did not pass backward",
          {.subject = "a step", .advice = "report this as a bug"});
  if (group_.size() > 1) group_.barrier().wait();  // all factors are there
  const ScopedSpan span(sink_, Phase::backward, "make gradients");
  const auto samples = samples_told();
  for (const auto& product : products_) {
    gradients_.scalar_type() == at::kDouble ? multiply<double>(product, samples)
                                            : multiply<float>(product, samples);
  }
}

/// By micro-batch of the step: its samples; 0 where it has none.
std::vector<std::int64_t> ProductSums::samples_told() const {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(step_.micro_batches), 0);
  for (int rank = 0; rank < group_.size(); ++rank) {
    const std::int64_t* const told = told_by(rank);
    for (std::int64_t i = 0; i < *told; ++i)
      samples.at(static_cast<std::size_t>(told[1 + 2 * i])) = told[2 + 2 * i];
  }
  return samples;
}

/// The samples' rows side by side: where the places have no gaps, the places themselves.
at::Tensor ProductSums::rows(const at::Tensor& places, const std::vector<std::int64_t>& samples) const {
  std::int64_t end = 0;
  bool has_gaps = false;
  for (std::size_t m = 0; m < samples.size(); ++m) {
    if (samples[m] == 0) continue;
    const std::int64_t begin = static_cast<std::int64_t>(m) * most_;
    has_gaps = has_gaps || begin != end;
    end = begin + samples[m];
  }
  if (!has_gaps) return end == places.size(0) ? places : places.narrow(0, 0, end);
  std::vector<at::Tensor> pieces;
  for (std::size_t m = 0; m < samples.size(); ++m)
    pieces.push_back(places.narrow(0, static_cast<std::int64_t>(m) * most_, samples[m]));
  return at::cat(pieces);
}

template <class T>
void ProductSums::multiply(const Product& product, const std::vector<std::int64_t>& samples) {
  const at::Tensor x = rows(product.inputs, samples);
  const at::Tensor dy = rows(product.output_gradients, samples);
  const Range own = part_of(product.out, group_.rank(), group_.size());
  T* const gradient = gradients_.data_ptr<T>();
  const auto out = static_cast<std::size_t>(product.out);
  const auto in = static_cast<std::size_t>(product.in);
  const auto depth = static_cast<std::size_t>(x.size(0));
  kernels::multiply(gradient + product.weight_offset + own.begin * product.in,
                    dy.const_data_ptr<T>() + own.begin, 1, out, x.const_data_ptr<T>(),
                    {static_cast<std::size_t>(own.size()), in, depth});
  kernels::column_sums(gradient + product.bias_offset, dy.const_data_ptr<T>(), depth, out);
}

}  // namespace dtrain::parallel
