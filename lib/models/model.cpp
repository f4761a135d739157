#include "models/model.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "core/error.hpp"
#include "kernels/fill.hpp"
#include "models/borrowed_parameter.hpp"
#include "models/layers/outputs_in_two.hpp"
#include "models/slicing/slices.hpp"
#include "models/slicing/tensor_group.hpp"

namespace dtrain::models {
namespace {

void fill_uniform(const at::Tensor& values, const kernels::RandomKey& key, float half_width) {
  const auto n = static_cast<std::size_t>(values.numel());
  if (values.scalar_type() == at::kDouble) {
    kernels::fill_uniform(values.data_ptr<double>(), n, key, 0, -half_width, half_width);
  } else {
    kernels::fill_uniform(values.data_ptr<float>(), n, key, 0, -half_width, half_width);
  }
}

void fill_normal(const at::Tensor& values, const kernels::RandomKey& key, float deviation) {
  const auto n = static_cast<std::size_t>(values.numel());
  if (values.scalar_type() == at::kDouble) {
    kernels::fill_normal(values.data_ptr<double>(), n, key, 0, 0.0F, deviation);
  } else {
    kernels::fill_normal(values.data_ptr<float>(), n, key, 0, 0.0F, deviation);
  }
}

/// A parameter's first values, in row-major order of its logical shape, on the CPU: of the whole.
at::Tensor initial_values(const Parameter& parameter, std::uint64_t seed) {
  using Kind = Initialisation::Kind;
  const auto type = parameter.value.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor values =
      at::empty(whole_shape(parameter.value, parameter.slice), at::TensorOptions().dtype(type));
  const kernels::RandomKey key{seed, kernels::Purpose::initialisation, 0, 0,
                               kernels::stream_of(parameter.name)};
  switch (parameter.init.kind) {
    case Kind::zero:
      values.zero_();
      break;
    case Kind::one:
      values.fill_(1);
      break;
    case Kind::uniform:
      fill_uniform(values, key, static_cast<float>(parameter.init.scale));
      break;
    case Kind::normal:
      fill_normal(values, key, static_cast<float>(parameter.init.scale));
      break;
    case Kind::given:
      values.copy_(parameter.init.values());
      break;
  }
  if (parameter.init.zero_rows > 0) values.narrow(0, 0, parameter.init.zero_rows).zero_();
  return values;
}

/// Throws usage_error where these parameters alone, as float, are larger than the machine's memory.
void require_memory(const Model& model, const std::vector<Parameter*>& parameters) {
  double bytes = 0;
  for (const Parameter* parameter : parameters)
    bytes += static_cast<double>(parameter->value.numel()) * sizeof(float);
  const double present =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  require(bytes <= present,
          fmt::format("its {} parameters take more than this machine's memory", model.parameter_count()),
          {.subject = fmt::format("--model {}", model.name()),
           .advice = "use --dry-run, or a smaller --model-option preset",
           .code = ExitCode::usage});
}

}  // namespace

at::Tensor first_values(const Parameter& parameter, std::uint64_t seed) {
  at::Tensor whole = initial_values(parameter, seed);
  const auto& slice = parameter.slice;
  return slice != nullptr ? part_of_whole(whole, *slice, slice->part) : whole;
}

Model::Model(std::string name, std::vector<std::unique_ptr<Layer>> layers)
    : name_(std::move(name)), layers_(std::move(layers)), held_(layers_.size(), true) {
  std::map<std::uint32_t, std::string> streams;
  for (const Parameter* parameter : parameters()) {
    const auto [place, added] = streams.emplace(kernels::stream_of(parameter->name), parameter->name);
    require(
        added,
        fmt::format("the parameters {} and {} would start with the same numbers", place->second,
                    parameter->name),
        {.subject = fmt::format("model {}", name_), .advice = "rename one of them", .code = ExitCode::usage});
  }
}

void Model::cut_layer(std::size_t layer, std::int64_t kept) {
  auto others = std::make_unique<OtherOutputs>(layers_.at(layer)->cut_outputs(kept));
  layers_[layer] = std::make_unique<FirstOutputs>(std::move(layers_[layer]));
  layers_.insert(layers_.begin() + static_cast<std::ptrdiff_t>(layer) + 1, std::move(others));
  held_.assign(layers_.size(), true);
}

void Model::hold(const std::vector<std::size_t>& layers) {
  held_.assign(layers_.size(), false);
  for (const std::size_t layer : layers) held_.at(layer) = true;
  const auto kept = with_memory();
  const auto shape_only = [](const at::Tensor& value) {
    return at::empty_like(value, value.options().device(at::kMeta));
  };
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (held_[i]) continue;
    for (Parameter& parameter : layers_[i]->parameters()) {
      if (std::ranges::find(kept, &parameter) != kept.end()) continue;
      parameter.value = shape_only(parameter.value).set_requires_grad(!parameter.frozen);
    }
    for (Buffer& buffer : layers_[i]->buffers()) {
      // A layer held here may use one that stays as it is.
      if (buffer.update != Buffer::Update::constant) buffer.value = shape_only(buffer.value);
    }
  }
}

void Model::slice(TensorGroup& group) {
  group_ = &group;
  for (const auto& layer : layers_) outputs_ = layer->slice(group, outputs_);
}

std::vector<std::string> Model::freeze(const std::function<bool(const std::string& name)>& chosen) {
  std::vector<std::string> names;
  for (const auto& layer : layers_) {
    for (Parameter& parameter : layer->parameters()) {
      if (!chosen(parameter.name)) continue;
      parameter.frozen = true;
      parameter.value.set_requires_grad(false);
      names.push_back(parameter.name);
    }
  }
  return names;
}

std::vector<Parameter*> Model::parameters() {
  std::vector<Parameter*> all;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!held_[i]) continue;
    for (auto& parameter : layers_[i]->parameters()) all.push_back(&parameter);
  }
  return all;
}

std::vector<Parameter*> Model::with_memory() {
  auto all = parameters();
  for (const Borrowed& tied : borrowed()) {
    if (held_[tied.borrower] && !held_[tied.owner]) all.push_back(tied.parameter);
  }
  return all;
}

std::vector<Model::Borrowed> Model::borrowed() {
  std::vector<Borrowed> all;
  for (std::size_t user = 0; user < layers_.size(); ++user) {
    for (BorrowedParameter* use : layers_[user]->borrowed()) {
      for (std::size_t owner = 0; owner < layers_.size(); ++owner) {
        for (Parameter& own : layers_[owner]->parameters()) {
          if (&own == &use->parameter()) all.push_back({&own, use, owner, user});
        }
      }
    }
  }
  return all;
}

std::vector<Buffer*> Model::buffers() {
  std::vector<Buffer*> all;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!held_[i]) continue;
    for (auto& buffer : layers_[i]->buffers()) all.push_back(&buffer);
  }
  return all;
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& layer : layers_) {
    for (const auto& parameter : layer->parameters()) {
      count += static_cast<std::int64_t>(whole_elements(parameter));
    }
  }
  return count;
}

std::vector<Shape> Model::input_shapes(std::int64_t n, const Shape& sample) const {
  Shape batch = {n};
  batch.insert(batch.end(), sample.begin(), sample.end());
  return {batch};
}

double Model::forward_flops(const Shape& sample) const {
  std::vector<Shape> shapes = input_shapes(1, sample);
  double flops = 0.0;
  for (const auto& layer : layers_) {
    flops += layer->cost(shapes).flops;
    shapes = layer->output_shapes(shapes);
  }
  return flops;
}

LossSums Model::training_loss(const Tensors& outputs, const at::Tensor& targets,
                              const TrainingLoss& how) const {
  require(how.plain(), "the model " + name_ + " tells no classes apart",
          {.subject = how.class_weights.defined() ? "--class-weights" : "--label-smoothing",
           .advice = "leave it out, or use another --model",
           .code = ExitCode::usage});
  return loss(outputs, targets);
}

void Model::require_known(const Tensors& /*inputs*/, const at::Tensor& /*targets*/) const {}

std::vector<double> Model::extra_sums(const Tensors& /*outputs*/, const at::Tensor& /*targets*/,
                                      Feedback /*words*/) const {
  return {};
}

std::vector<double> Model::extra_values(std::span<const double> /*sums*/, double /*loss*/) const {
  return {};
}

void Model::to(at::ScalarType dtype, at::Device device) {
  for (Parameter* parameter : with_memory()) {
    const auto options = at::TensorOptions().dtype(dtype).device(device);
    // Strides stay: channels-last weights are channels-last in any type.
    parameter->value =
        at::empty_like(parameter->value, options).detach().set_requires_grad(!parameter->frozen);
  }
  // A layer without parameters, in a stage of its own, takes the type from those of the others.
  for (const auto& layer : layers_) {
    for (Parameter& other : layer->parameters()) {
      if (!other.value.is_meta()) continue;
      other.value =
          at::empty_like(other.value, other.value.options().dtype(dtype)).set_requires_grad(!other.frozen);
    }
  }
  for (Buffer* buffer : buffers()) {
    const auto type = buffer->value.scalar_type();
    const bool exact = buffer->update == Buffer::Update::constant && type == at::kDouble;
    buffer->value = buffer->value.to(device, at::isFloatingType(type) && !exact ? dtype : type);
    if (buffer->step_sum.defined()) buffer->step_sum = buffer->step_sum.to(device);
  }
}

void Model::initialise(std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (Parameter* parameter : with_memory()) {
    if (!parameter->value.is_meta()) continue;
    require_memory(*this, with_memory());
    parameter->value = at::empty_like(parameter->value, parameter->value.options().device(at::kCPU))
                           .set_requires_grad(!parameter->frozen);
  }
  fill(seed);
}

void Model::fill(std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (Parameter* parameter : with_memory()) {
    if (!parameter->value.is_meta()) parameter->value.copy_(first_values(*parameter, seed));
  }
}

void Model::leave_shapes() {
  const at::NoGradGuard no_grad;
  const auto own = parameters();
  for (Parameter* parameter : with_memory()) {
    const bool is_shape = !parameter->frozen && std::ranges::find(own, parameter) != own.end();
    const auto options = parameter->value.options().device(is_shape ? at::kMeta : at::kCPU);
    parameter->value = at::empty_like(parameter->value, options).set_requires_grad(!parameter->frozen);
  }
  for (Buffer* buffer : buffers()) {
    buffer->value = buffer->value.clone();
    if (buffer->step_sum.defined()) buffer->step_sum = buffer->step_sum.clone();
  }
}

}  // namespace dtrain::models
