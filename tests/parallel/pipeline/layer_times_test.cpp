#include "parallel/pipeline/layer_times.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "models/borrowed_parameter.hpp"
#include "parallel/pipeline/plain_layers.hpp"

namespace dtrain::parallel {
namespace {

/// Multiplies by a weight of its own and writes down what it meets.
class Witness final : public models::Layer {
 public:
  Witness(const std::string& name, models::Layer* owner) : Layer(name) {
    if (owner != nullptr) use_.emplace(owner->parameters().at(0));
    parameters_.push_back({.name = name + ".weight",
                           .value = at::empty({4, 4}).set_requires_grad(true),
                           .init = {.kind = models::Initialisation::Kind::one}});
    buffers_.push_back(
        {.name = name + ".mean", .value = at::full({4}, 5.0), .step_sum = at::zeros({1, 4}, at::kDouble)});
  }
  std::vector<models::BorrowedParameter*> borrowed() override {
    return use_ ? std::vector{&*use_} : std::vector<models::BorrowedParameter*>();
  }
  models::Tensors forward(const models::Tensors& inputs, const models::Context& context) override {
    seen = context;
    type = parameters_[0].value.scalar_type();
    memory_of_all = 0;
    types_of_all.clear();
    for (const auto* layer : *all) {
      for (const auto& parameter : layer->parameters()) {
        memory_of_all += parameter.value.is_meta() ? 0 : 1;
        types_of_all.insert(parameter.value.scalar_type());
      }
    }
    buffers_[0].step_sum.add_(1);
    buffers_[0].step_weight += 1;
    return {at::matmul(inputs.at(0), parameters_[0].value * (use_ ? use_->value() : at::ones({})))};
  }
  std::vector<models::Shape> output_shapes(const std::vector<models::Shape>& inputs) const override {
    return inputs;
  }
  models::Cost cost(const std::vector<models::Shape>&) const override { return {.flops = 1}; }

  models::Context seen;
  at::ScalarType type = at::kFloat;
  int memory_of_all = 0;
  std::set<at::ScalarType> types_of_all;
  const std::vector<const models::Layer*>* all = nullptr;

 private:
  std::optional<models::BorrowedParameter> use_;
};

TEST(LayerTimesTest, ARunsLayersAreTimedAsItComputesAndOneHasMemoryAtATime) {
  std::vector<std::unique_ptr<models::Layer>> made;
  std::vector<Witness*> witnesses;
  std::vector<const models::Layer*> all;
  for (const char* name : {"a", "b", "c"}) {
    auto witness = std::make_unique<Witness>(name, made.empty() ? nullptr : made.front().get());
    witness->all = &all;
    witnesses.push_back(witness.get());
    all.push_back(witness.get());
    made.push_back(std::move(witness));
  }
  PlainLayers model("witnesses", std::move(made));
  for (auto* parameter : model.parameters())
    parameter->value = at::empty_like(parameter->value, at::TensorOptions().device(at::kMeta));
  const auto times = measure_layers(model, {{2, 4}},
                                    {.type = at::kDouble,
                                     .half = at::kBFloat16,
                                     .kernels = models::Kernels::libtorch,
                                     .reproducible = true,
                                     .seed = 9});
  EXPECT_EQ(times.size(), 3U);
  for (const double time : times) EXPECT_GT(time, 0);
  for (const Witness* witness : witnesses) {
    SCOPED_TRACE(witness->name());
    EXPECT_EQ(witness->type, at::kDouble);
    EXPECT_EQ(witness->types_of_all, std::set{at::kDouble}) << "which layers without parameters ask for";
    EXPECT_EQ(witness->seen.half, at::kBFloat16);
    EXPECT_EQ(witness->seen.kernels, models::Kernels::libtorch);
    EXPECT_EQ(witness->seen.seed, 9U);
    EXPECT_TRUE(witness->seen.as_sent);
    EXPECT_EQ(witness->memory_of_all, witness == witnesses.front() ? 1 : 2) << "its own, and a borrowed one";
    EXPECT_TRUE(witness->parameters().at(0).value.is_meta()) << "as before";
    EXPECT_EQ(witness->parameters().at(0).value.scalar_type(), at::kFloat) << "as before";
    EXPECT_EQ(witness->parameters().at(0).place, nullptr);
    const auto& buffer = witness->buffers().at(0);
    EXPECT_EQ(buffer.value.scalar_type(), at::kFloat);
    EXPECT_EQ(buffer.step_sum.abs().sum().item<double>(), 0);
    EXPECT_EQ(buffer.step_weight, 0);
  }
}

TEST(LayerTimesTest, TextsOfFewWordsAreTimed) {
  for (const std::int64_t vocabulary : {1, 2, 4, 5, 11}) {
    const auto model = models::find_model("gpt").make(
        {.task = "language_modelling", .sample_shape = {8}, .vocabulary = vocabulary},
        {{"layers", "1"}, {"heads", "2"}, {"width", "8"}});
    EXPECT_EQ(measure_layers(*model, {{2, 8}}, {.vocabulary = vocabulary}).size(), model->layers().size())
        << vocabulary << " words";
    for (const auto* parameter : model->parameters())
      EXPECT_FALSE(parameter->value.grad().defined()) << parameter->name;
  }
}

}  // namespace
}  // namespace dtrain::parallel
