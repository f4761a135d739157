#include "models/exported/exported_model.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "models/compute/precision.hpp"
#include "models/exported/archive.hpp"
#include "models/exported/golden.hpp"

namespace dtrain::models::exported {
namespace {

/// What make_programs.py has written.
std::string program(const std::string& name) {
  return std::string(std::getenv("DTRAIN_PROGRAMS")) + "/" + name + ".pt2";
}

DatasetFacts images() { return {.task = "image_classification", .sample_shape = {3, 8, 8}, .classes = 5}; }
DatasetFacts words() { return {.task = "language_modelling", .sample_shape = {6}, .vocabulary = 11}; }
DatasetFacts texts(std::int64_t length = 6) {
  return {.task = "text_classification", .sample_shape = {length}, .classes = 5, .vocabulary = 11};
}
DatasetFacts rows(const std::string& loss = "") {
  return {.task = "table_classification", .sample_shape = {6}, .classes = 3, .loss = loss};
}

std::unique_ptr<Model> made(const std::string& name, const DatasetFacts& facts) {
  auto model = registration(program(name)).make(facts, {});
  model->to(at::kDouble, at::kCPU);
  model->initialise(1);
  return model;
}

Tensors inputs_of(const DatasetFacts& facts, std::int64_t n, std::uint64_t seed = 3) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  Shape shape = {n};
  shape.insert(shape.end(), facts.sample_shape.begin(), facts.sample_shape.end());
  if (facts.vocabulary > 0) return {at::randint(facts.vocabulary, shape, generator, at::kInt)};
  return {at::randn(shape, generator, at::kDouble)};
}

at::Tensor targets_of(const DatasetFacts& facts, std::int64_t n) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  if (facts.task == "language_modelling")
    return at::randint(facts.vocabulary, {n, facts.sample_shape[0]}, generator, at::kLong);
  return at::randint(facts.classes, {n}, generator, at::kLong);
}

struct Found {
  double loss = 0;
  std::map<std::string, at::Tensor> gradients;
};

/// Forward and backward, the graph being cut before each layer that `cut` picks.
Found step(Model& model, const DatasetFacts& facts, std::int64_t n,
           const std::function<bool(std::size_t)>& cut, Kernels kernels = Kernels::own) {
  for (auto* parameter : model.parameters()) parameter->value.mutable_grad().reset();
  const Context context{.mode = Mode::training, .seed = 7, .step = 2, .micro_batch = 1, .kernels = kernels};
  std::vector<Tensors> outputs;
  std::vector<Tensors> leaves;
  Tensors flowing = inputs_of(facts, n);
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    if (i > 0 && cut(i)) {
      outputs.push_back(flowing);
      for (auto& tensor : flowing)
        tensor = tensor.is_floating_point() ? tensor.detach().set_requires_grad(true) : tensor;
      leaves.push_back(flowing);
    }
    flowing = model.layers()[i]->run(flowing, context);
  }
  const auto sums = model.loss(flowing, targets_of(facts, n));
  torch::autograd::backward({sums.loss}, {});
  for (std::size_t s = outputs.size(); s-- > 0;) {
    std::vector<at::Tensor> with;
    std::vector<at::Tensor> given;
    for (std::size_t i = 0; i < outputs[s].size(); ++i) {
      if (!outputs[s][i].requires_grad() || !leaves[s][i].grad().defined()) continue;
      with.push_back(outputs[s][i]);
      given.push_back(leaves[s][i].grad());
    }
    if (!with.empty()) torch::autograd::backward(with, given);
  }
  Found found{.loss = sums.loss.item<double>()};
  for (auto* parameter : model.parameters()) {
    const at::Tensor gradient = parameter->value.grad();
    if (gradient.defined()) found.gradients[parameter->name] = gradient.contiguous().clone();
  }
  return found;
}

void expect_alike(const Found& found, const Found& expected, double tolerance) {
  EXPECT_NEAR(found.loss, expected.loss, tolerance * std::abs(expected.loss));
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    const double scale = std::max(gradient.abs().max().item<double>(), 1e-3);
    EXPECT_LE((found.gradients.at(name) - gradient).abs().max().item<double>(), tolerance * scale) << name;
  }
}

Error refusal(const std::string& name, const DatasetFacts& facts) {
  try {
    registration(program(name)).make(facts, {});
  } catch (const Error& error) {
    return error;
  }
  return Error("was not refused", {.code = ExitCode::success});
}

TEST(ExportedModelTest, ComputesTheGoldenBatchAsPyTorchDid) {
  for (const char* name :
       {"images", "words", "views", "own_loss", "residual", "pooled", "bag", "embedding_bag", "turned_words"})
    EXPECT_NE(check_golden(program(name)).find("as PyTorch found them"), std::string::npos) << name;
  EXPECT_EQ(check_golden(program("plain")), "");  // it has none
}

/// Those of odd_modules.py, with a dataset for each.
const std::vector<std::pair<const char*, DatasetFacts>>& odd_programs() {
  static const std::vector<std::pair<const char*, DatasetFacts>> all = {{"own_statistics", images()},
                                                                        {"written_flat", images()},
                                                                        {"written_contiguous", images()},
                                                                        {"written_unflattened", images()},
                                                                        {"viewed_as", images()},
                                                                        {"written_pool", images()},
                                                                        {"unsafe_chunks", rows()},
                                                                        {"frozen_reader", rows()},
                                                                        {"turned_in_place", rows()},
                                                                        {"counting", rows()},
                                                                        {"multiplied_behind", rows()},
                                                                        {"dropped_in_place", rows()},
                                                                        {"written_rows", rows()},
                                                                        {"numbers_of_sizes", rows()},
                                                                        {"negative_scale", rows()},
                                                                        {"one_bias", rows()},
                                                                        {"dropped_turned", rows()},
                                                                        {"padded_elsewhere", texts(5)},
                                                                        {"bags", texts(5)},
                                                                        {"bag_of_one", texts(5)}};
  return all;
}

TEST(ExportedModelTest, ComputesOddProgramsAsPyTorchDid) {
  for (const auto& [name, facts] : odd_programs()) {
    SCOPED_TRACE(name);
    EXPECT_NO_THROW(EXPECT_NE(check_golden(program(name)), ""));
    const auto model = made(name, facts);
    const auto whole = step(*model, facts, 4, [](std::size_t) { return false; });
    expect_alike(step(*model, facts, 4, [](std::size_t) { return true; }), whole, 1e-12);
  }
}

/// As ranks of a full machine have.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_ = at::get_num_threads();
};

TEST(ExportedModelTest, OwnProductsTakeOneBiasForAllOutputsForWhatItIs) {
  const OneThread one_thread;
  EXPECT_NO_THROW(EXPECT_NE(check_golden(program("one_bias")), ""));
}

TEST(ExportedModelTest, OwnKernelsRefuseWeightsOfOtherInputs) {
  const OneThread one_thread;
  for (const auto& [name, facts] : {std::pair("wide_weight", rows()), std::pair("deep_weight", images()),
                                    std::pair("short_statistics", images())}) {
    const auto model = made(name, facts);
    EXPECT_THROW(step(*model, facts, 4, [](std::size_t) { return false; }), Error) << name;
  }
}

TEST(ExportedModelTest, DropoutLeavesTheOrderInMemoryAsPyTorchDoes) {
  const auto whole = [](std::size_t) { return false; };
  const auto in_place = made("dropped_turned", rows());
  const auto elsewhere = made("dropped_turned_elsewhere", rows());
  for (std::size_t i = 0; i < in_place->parameters().size(); ++i)
    elsewhere->parameters()[i]->value.detach().copy_(in_place->parameters()[i]->value.detach());
  expect_alike(step(*in_place, rows(), 4, whole), step(*elsewhere, rows(), 4, whole), 1e-12);
}

TEST(ExportedModelTest, TheLowestNumberOfFloat32IsThatOfHalfPrecision) {
  for (const char* name :
       {"lowest_fill", "lowest_fill_in_place", "lowest_where", "lowest_where_constant", "lowest_clamp"}) {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      const auto model = registration(program(name)).make(rows(), {});
      model->initialise(1);
      const at::NoGradGuard no_gradients;
      const ProductScope half(type);
      Tensors flowing = {inputs_of(rows(), 4).at(0).to(at::kFloat)};
      for (const auto& layer : model->layers()) flowing = layer->run(flowing, {});
      EXPECT_TRUE(at::isfinite(flowing.at(0)).all().item<bool>()) << name;
    }
  }
}

TEST(ExportedModelTest, ALayerLeavesItsInputsAsTheyWere) {
  for (const auto& [name, facts] : odd_programs()) {
    const auto model = made(name, facts);
    const Context context{.mode = Mode::training, .seed = 7, .step = 2, .micro_batch = 1};
    Tensors flowing = inputs_of(facts, 4);
    for (const auto& layer : model->layers()) {
      for (auto& tensor : flowing)
        tensor = tensor.is_floating_point() ? tensor.detach().set_requires_grad(true) : tensor;
      Tensors before;
      for (const auto& tensor : flowing) before.push_back(tensor.detach().clone());
      const Tensors made = layer->run(flowing, context);
      for (std::size_t i = 0; i < before.size(); ++i)
        EXPECT_TRUE(at::equal(flowing[i], before[i])) << name << ", " << layer->name() << ", input " << i;
      flowing = made;
    }
  }
}

TEST(ExportedModelTest, RefusesAGoldenBatchThatDoesNotAgree) {
  for (const auto& [name, what] : {std::pair("other_golden", "another loss"),
                                   std::pair("other_gradient", "another gradient of bn.bias")}) {
    try {
      check_golden(program(name));
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
      EXPECT_NE(error.problem().find(what), std::string::npos) << error.what();
      EXPECT_NE(error.advice().find("--golden off"), std::string::npos);
    }
  }
}

TEST(ExportedModelTest, ACutGraphGivesTheGradientsOfTheWhole) {
  for (const auto& [name, facts] :
       {std::pair("images", images()), std::pair("words", words()), std::pair("views", rows()),
        std::pair("residual", images()), std::pair("pooled", images()), std::pair("bag", texts()),
        std::pair("embedding_bag", texts())}) {
    SCOPED_TRACE(name);
    const auto model = made(name, facts);
    const auto whole = step(*model, facts, 4, [](std::size_t) { return false; });
    expect_alike(step(*model, facts, 4, [](std::size_t) { return true; }), whole, 1e-12);
    for (std::size_t at = 1; at < model->layers().size(); ++at)
      expect_alike(step(*model, facts, 4, [at](std::size_t i) { return i == at; }), whole, 1e-12);
  }
}

TEST(ExportedModelTest, LibTorchsOperatorsAgreeWithOwnKernels) {
  for (const auto& [name, facts] :
       {std::pair("images", images()), std::pair("words", words()), std::pair("residual", images()),
        std::pair("pooled", images()), std::pair("bag", texts()), std::pair("embedding_bag", texts())}) {
    const auto model = made(name, facts);
    const auto whole = [](std::size_t) { return false; };
    expect_alike(step(*model, facts, 5, whole, Kernels::libtorch), step(*model, facts, 5, whole), 1e-9);
  }
}

TEST(ExportedModelTest, DropsInTrainingOnly) {
  const auto model = made("words", words());
  const at::NoGradGuard no_gradients;
  const auto outputs = [&](Mode mode, std::uint32_t at) {
    Tensors flowing = inputs_of(words(), 3);
    for (const auto& layer : model->layers()) flowing = layer->run(flowing, {.mode = mode, .step = at});
    return flowing.at(0);
  };
  EXPECT_TRUE(outputs(Mode::training, 1).equal(outputs(Mode::training, 1)));
  EXPECT_FALSE(outputs(Mode::training, 1).equal(outputs(Mode::training, 2)));
  EXPECT_TRUE(outputs(Mode::evaluation, 1).equal(outputs(Mode::evaluation, 2)));
}

TEST(ExportedModelTest, HasTheStateOfTheModule) {
  auto model = made("images", images());
  std::map<std::string, Buffer::Update> buffers;
  for (const auto* buffer : model->buffers()) buffers[buffer->name] = buffer->update;
  using Update = Buffer::Update;
  const std::map<std::string, Update> expected = {{"bn.running_mean", Update::moving_mean},
                                                  {"bn.running_var", Update::moving_mean},
                                                  {"bn.num_batches_tracked", Update::count_steps},
                                                  {"norm.running_mean", Update::moving_mean},
                                                  {"norm.running_var", Update::moving_mean},
                                                  {"norm.num_batches_tracked", Update::count_steps},
                                                  {"mask", Update::constant}};
  EXPECT_EQ(buffers, expected);
  model = made("words", words());
  std::map<std::string, bool> frozen;
  for (const auto* parameter : model->parameters()) frozen[parameter->name] = parameter->frozen;
  EXPECT_TRUE(frozen.at("places"));
  EXPECT_TRUE(frozen.at("spare.weight"));  // nothing depends on it
  EXPECT_FALSE(frozen.at("embedding.weight"));
  EXPECT_FALSE(frozen.contains("head.weight"));  // it is the embedding's
  EXPECT_EQ(tied_names(*model), (std::map<std::string, std::string>{{"head.weight", "embedding.weight"}}));
  EXPECT_EQ(model->borrowed().size(), 1U);
  EXPECT_NE(model->remark().find("spare.weight"), std::string::npos);
}

TEST(ExportedModelTest, EveryBufferCountsAsTheModelHasIt) {
  const at::NoGradGuard no_gradients;
  for (const std::string name : {"keep", "shift", "scale", "exact"}) {
    const auto model = made("kept", rows());
    const auto after = [&](std::size_t first, Tensors flowing) {
      for (std::size_t i = first; i < model->layers().size(); ++i)
        flowing = model->layers()[i]->run(flowing, {.mode = Mode::evaluation});
      return flowing.at(0);
    };
    const Tensors inner = model->layers()[0]->run(inputs_of(rows(), 4), {.mode = Mode::evaluation});
    const auto before = after(0, inputs_of(rows(), 4));
    const auto before_behind = after(1, inner);
    for (auto* buffer : model->buffers()) {
      if (buffer->name == name) buffer->value.copy_(1 - buffer->value);
    }
    EXPECT_FALSE(after(0, inputs_of(rows(), 4)).allclose(before)) << name;
    // The second layer uses `scale` too.
    EXPECT_EQ(after(1, inner).allclose(before_behind), name == "keep" || name == "shift") << name;
  }
}

TEST(ExportedModelTest, BuffersOfFloat64AreExactInAnyRun) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    auto model = registration(program("kept")).make(rows(), {});
    EXPECT_EQ(model->remark(), "");
    model->to(type, at::kCPU);
    model->initialise(1);
    for (const auto* buffer : model->buffers()) {
      if (buffer->name == "exact") {
        EXPECT_EQ(buffer->value[0].to(at::kDouble).item<double>(), 1.0 / 3);
      }
    }
    Tensors flowing = {inputs_of(rows(), 4).at(0).to(type)};
    for (const auto& layer : model->layers()) flowing = layer->run(flowing, {.mode = Mode::evaluation});
    EXPECT_EQ(flowing.at(0).scalar_type(), type);
  }
}

TEST(ExportedModelTest, AStageKeepsBuffersThatStayOfOtherStages) {
  const auto model = registration(program("kept")).make(rows(), {});
  model->hold({1, 2});
  model->to(at::kDouble, at::kCPU);
  model->initialise(1);
  EXPECT_TRUE(model->layers()[0]->parameters()[0].value.is_meta());
  const at::NoGradGuard no_gradients;
  Tensors flowing = {at::ones({4, 6}, at::kDouble)};
  const auto before = model->layers()[1]->run(flowing, {}).at(0);
  for (auto& buffer : model->layers()[0]->buffers()) {
    if (buffer.name == "scale") buffer.value.mul_(2);
  }
  EXPECT_TRUE(model->layers()[1]->run(flowing, {}).at(0).allclose(2 * before));
}

TEST(ExportedModelTest, AFirstLayerWithoutParametersComputesInTheRunsType) {
  const auto model = made("real_ids", texts(5));
  EXPECT_TRUE(model->layers().at(0)->parameters().empty());
  const auto found = step(*model, texts(5), 4, [](std::size_t) { return true; });
  EXPECT_EQ(found.gradients.at("fc.weight").scalar_type(), at::kDouble);
}

TEST(ExportedModelTest, ThatLayerAloneInAStageDoesSoToo) {
  const auto model = registration(program("real_ids")).make(texts(5), {});
  model->hold({0});
  model->to(at::kDouble, at::kCPU);
  model->initialise(1);
  const at::NoGradGuard no_gradients;
  EXPECT_EQ(model->layers()[0]->run(inputs_of(texts(5), 4), {}).at(0).scalar_type(), at::kDouble);
}

TEST(ExportedModelTest, RefusesLimitsOfTheBatchAndWarnsOfOtherConditions) {
  for (const auto& [name, takes] : {std::pair("branch_on_batch", "2 to 8"), std::pair("limited", "2 to 64"),
                                    std::pair("large_batches", "at least 4")}) {
    const auto error = refusal(name, rows());
    EXPECT_EQ(error.code(), ExitCode::usage) << error.what();
    EXPECT_NE(error.problem().find(std::string("takes batches of ") + takes), std::string::npos)
        << error.what();
    EXPECT_NE(error.advice().find("jobs/export_model.py"), std::string::npos) << error.what();
  }
  for (const char* name : {"even_batches", "asserted"}) {
    const auto remark = made(name, rows())->remark();
    EXPECT_NE(remark.find("batch"), std::string::npos) << remark;
    EXPECT_NE(remark.find("and not batch 3"), std::string::npos) << remark;
    EXPECT_NE(remark.find("jobs/export_model.py"), std::string::npos) << remark;
  }
  const auto remark = made("positions", texts(20))->remark();
  EXPECT_NE(remark.find("ids.shape[1] <= 16, and not"), std::string::npos) << remark;
  EXPECT_EQ(made("positions", texts(16))->remark(), "");
  for (const auto& [name, facts] : {std::pair("plain", rows()), std::pair("embedding_bag", texts())})
    EXPECT_EQ(made(name, facts)->remark(), "") << name;
}

TEST(ExportedModelTest, AProgramExportedInEvaluationModeTrainsAllTheSame) {
  const auto model = made("evaluated", images());
  const auto trained = made("images", images());
  std::map<std::string, at::Tensor> values;
  for (auto* parameter : trained->parameters()) values[parameter->name] = parameter->value;
  const at::NoGradGuard no_gradients;
  for (auto* parameter : model->parameters()) parameter->value.copy_(values.at(parameter->name));
  const auto sums = [&](Model& one) {
    Tensors flowing = inputs_of(images(), 4);
    for (const auto& layer : one.layers()) flowing = layer->run(flowing, {.mode = Mode::training});
    return flowing.at(0);
  };
  // Masks are named after nodes, which have the same names in both.
  EXPECT_TRUE(sums(*model).allclose(sums(*trained), 1e-10));
  for (const auto* buffer : model->buffers()) {
    if (buffer->name.ends_with("running_mean")) {
      EXPECT_GT(buffer->step_weight, 0) << buffer->name;
    }
    if (buffer->name.ends_with("tracked")) {
      EXPECT_EQ(buffer->update, Buffer::Update::count_steps);
    }
  }
}

TEST(ExportedModelTest, ShapesAreThoseOfTheTensors) {
  for (const auto& [name, facts] :
       {std::pair("images", images()), std::pair("words", words()), std::pair("residual", images()),
        std::pair("pooled", images()), std::pair("bag", texts()), std::pair("embedding_bag", texts())}) {
    const auto model = made(name, facts);
    for (const std::int64_t n : {1, 3}) {
      Tensors flowing = inputs_of(facts, n);
      std::vector<Shape> shapes = model->input_shapes(n, facts.sample_shape);
      for (const auto& layer : model->layers()) {
        shapes = layer->output_shapes(shapes);
        flowing = layer->run(flowing, {.mode = Mode::evaluation});
        ASSERT_EQ(flowing.size(), shapes.size()) << layer->name();
        for (std::size_t i = 0; i < shapes.size(); ++i) EXPECT_EQ(flowing[i].sizes().vec(), shapes[i]);
      }
    }
    EXPECT_GT(model->forward_flops(facts.sample_shape), 100);
  }
}

TEST(ExportedModelTest, TheModelsOwnLossCountsForEachSample) {
  const auto model = made("own_loss", rows("model"));
  EXPECT_EQ(model->goal(), Goal::own_loss);
  Tensors flowing = inputs_of(rows(), 4);
  const auto targets = targets_of(rows(), 4);
  flowing.push_back(targets);
  for (const auto& layer : model->layers()) flowing = layer->run(flowing, {});
  const auto sums = model->loss(flowing, targets);
  EXPECT_EQ(sums.weight, 4);
  EXPECT_NEAR(sums.loss.item<double>(), 4 * flowing.at(0).item<double>(), 1e-12);
}

TEST(ExportedModelTest, ACopyWithoutWeightsIsTheSameProgram) {
  const auto model = made("images", images());
  const std::string copy = program("copied");
  model->save_program(copy);
  const auto again = registration(copy).make(images(), {});
  EXPECT_EQ(again->program_hash(), model->program_hash());
  EXPECT_NE(made("plain", rows())->program_hash(), model->program_hash());
  for (const auto* buffer : again->buffers()) {
    if (buffer->name == "mask") {
      EXPECT_EQ(buffer->value.sum().item<float>(), 10);
    }
  }
  EXPECT_FALSE(Archive(copy).has("data/weights/weight_0"));
}

TEST(ExportedModelTest, RefusesWhatCannotBeTrainedByNameModuleAndLine) {
  const auto expect = [](const std::string& name, const std::string& problem, const std::string& advice) {
    const auto error = refusal(name, rows());
    EXPECT_EQ(error.code(), ExitCode::usage) << name << ": " << error.what();
    EXPECT_NE(error.problem().find(problem), std::string::npos) << name << ": " << error.what();
    EXPECT_NE(error.advice().find(advice), std::string::npos) << name << ": " << error.what();
    EXPECT_NE(error.subject().find(name), std::string::npos) << name << ": " << error.what();
  };
  expect("random", "aten.rand_like.default in the outermost module (make_programs.py:", "nn.Dropout");
  expect("branch", "control flow", "torch.where");
  expect("no_grad", "torch.no_grad()", "detach()");
  expect("counts", "writes to the buffer seen", "BatchNorm");
  expect("no_grad_write", "torch.no_grad()", "detach()");
  expect("own_counter", "writes to the buffer steps", "BatchNorm");
  expect("counted_behind", "writes to the buffer steps", "BatchNorm");
  expect("lists", "aten._foreach_mul_", "torch.nn");
  expect("turned", "changes a tensor's shape in place", "without the underscore");
  expect("opens_files", "aten.from_file.default", "torch.nn");
  expect("internal", "is one of LibTorch's internal operators", "torch.nn");
  expect("of_backward", "of backward passes", "torch.nn");
  expect("other_space", "neither of PyTorch's own operators nor of a plug-in's", "--plugin");
  expect("without_outputs", "is an operator that this LibTorch does not have", "--plugin");
  expect("strided", "aten.as_strided.default", "narrow");
  expect("running_instances", "keeps running statistics", "track_running_stats=False");
  expect("complex", "complex numbers", "float32");
  expect("fixed", "batches of 4 samples only", "Dim(\"batch\", min=2)");
  expect("unknown", "mine.sigmoid.default in the outermost module (make_programs.py:", "torch.nn");
  expect("schema_9", "schema 9.1, and dtrain reads schema 8", "PyTorch 2.11");
  expect("missing", "no such file", "torch.export.save");
}

TEST(ExportedModelTest, WhatTheOutputsDoNotDependOnMayBeAnything) {
  const auto none = refusal("unused_random", rows());
  EXPECT_EQ(none.code(), ExitCode::success) << none.what();
}

TEST(ExportedModelTest, RefusesDamagedFiles) {
  for (const char* name : {"truncated", "text", "empty", "no_json", "no_model", "backwards", "large_tensor",
                           "short_tensor", "inflating"}) {
    const auto error = refusal(name, rows());
    EXPECT_EQ(error.code(), ExitCode::checkpoint) << name << ": " << error.what();
    EXPECT_NE(error.subject().find(name), std::string::npos) << error.what();
  }
}

TEST(ExportedModelTest, RefusesADatasetThatDoesNotFitWithBothShapes) {
  const auto expect = [](const std::string& name, const DatasetFacts& facts, const std::string& problem) {
    const auto error = refusal(name, facts);
    EXPECT_EQ(error.code(), ExitCode::usage) << error.what();
    EXPECT_NE(error.problem().find(problem), std::string::npos) << error.what();
  };
  auto facts = rows();
  facts.classes = 4;
  expect("plain", facts, "gives outputs [2, 3]");
  facts = rows();
  facts.sample_shape = {7};
  expect("plain", facts, "6] of Float as its input");
  expect("plain", words(), "and the samples of a dataset of language_modelling are whole numbers");
  expect("own_loss", rows(), "takes 2 inputs (x, target), and the dataset gives 1");
  expect("plain", rows("model"), "takes 1 inputs (x), and the dataset gives 2");
  expect("plain", rows("mse"), "its own inputs");
  facts = words();
  facts.vocabulary = 12;
  expect("words", facts, "has 11 rows for words, and the dataset has 12 words");
  facts = words();
  facts.sample_shape = {5};
  expect("words", facts, "6] of Long as its input");
}

}  // namespace
}  // namespace dtrain::models::exported
