#include "parallel/pipeline/pipeline.hpp"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "models/layers/linear.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/gradient_hooks.hpp"
#include "parallel/job_of_test.hpp"
#include "parallel/pipeline/plain_layers.hpp"
#include "parallel/pipeline/simulation.hpp"
#include "parallel/small_model.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kSamples = 13;
constexpr int kPieces = 5;

struct Reference {
  std::map<std::string, at::Tensor> gradients;
  at::Tensor outputs;
};

Reference reference() {
  auto model = small_model();
  const FlatParameters parameters(*model, at::kDouble);
  const auto batch = small_batch(kSamples);
  const auto walk = whole_walk(*model);
  auto passed = walk.forward({batch.inputs}, {});
  Reference found;
  found.outputs = passed.outputs()[0].detach().clone();
  walk.backward(passed, model->loss(passed.outputs(), batch.targets).loss);
  for (const auto* parameter : model->parameters())
    found.gradients[parameter->name] = parameter->value.grad();
  return found;
}

class PipelineTest : public testing::TestWithParam<std::tuple<Pipelining, int, bool, bool>> {};

TEST_P(PipelineTest, GradientsAndOutputsAreThoseOfOneRank) {
  const auto& [pipelining, stages_per_rank, recompute, varying] = GetParam();
  JobOfTest job(topology::Axis::pipe);
  auto model = small_model();
  const auto layers = static_cast<int>(model->layers().size());
  if (job.pipe().size() == 1 && stages_per_rank > 1) GTEST_SKIP() << "one rank has one stage";
  if (job.pipe().size() * stages_per_rank > layers)
    GTEST_SKIP() << "the model has only " << layers << " layers";
  const auto cuts = cut_stages(std::vector<double>(model->layers().size(), 1.0), job.pipe().size(),
                               stages_per_rank, "small");
  model->hold(cuts.layers_of(job.rank()));
  const FlatParameters parameters(*model, at::kDouble);
  Pipeline pipeline(
      {.model = *model,
       .cuts = cuts,
       .pipe = job.pipe(),
       .queue = job.queue(),
       .sink = job.sink(),
       .shapes = varying ? StageMessages::SampleShapes::varying : StageMessages::SampleShapes::alike,
       .repeated_layers = recompute ? 99 : 0});
  const auto batch = small_batch(kSamples);
  std::vector<std::int64_t> samples;
  for (int m = 0; m < kPieces; ++m) samples.push_back(part_of(kSamples, m, kPieces).size());
  const auto piece = [&](const at::Tensor& all, int m) {
    const auto part = part_of(kSamples, m, kPieces);
    return all.narrow(0, part.begin, part.size());
  };
  const auto schedule = make_schedule(pipelining, job.pipe().size(), stages_per_rank, kPieces);
  const auto expected = reference();
  for (int step = 0; step < 2; ++step) {  // the second one knows the messages' layout
    for (auto* parameter : model->parameters()) parameter->value.mutable_grad().reset();
    pipeline.train(schedule, samples,
                   {.context = [](int) { return models::Context{}; },
                    .inputs = [&](int m) { return models::Tensors{piece(batch.inputs, m)}; },
                    .loss =
                        [&](int m, const models::Tensors& outputs) {
                          return model->loss(outputs, piece(batch.targets, m)).loss;
                        }});
    for (const auto* parameter : model->parameters()) {
      ASSERT_TRUE(parameter->value.grad().defined()) << parameter->name;
      const auto gap = (parameter->value.grad() - expected.gradients.at(parameter->name)).abs().max();
      EXPECT_LT(gap.item<double>(), 1e-13) << parameter->name;
    }
  }
  std::vector<at::Tensor> outputs;
  pipeline.evaluate(make_forward_schedule(job.pipe().size(), stages_per_rank, kPieces), samples,
                    {.context = {.mode = models::Mode::evaluation},
                     .inputs = [&](int m) { return models::Tensors{piece(batch.inputs, m)}; },
                     .outputs =
                         [&](int m, const models::Tensors& found, const at::Tensor& codes) {
                           EXPECT_EQ(m, static_cast<int>(outputs.size()));
                           EXPECT_EQ(codes.size(0), samples[static_cast<std::size_t>(m)]);
                           outputs.push_back(found[0].clone());
                         },
                     .code_layer = 0});
  EXPECT_EQ(outputs.size(), pipeline.is_last() ? kPieces : 0);
  if (pipeline.is_last()) {
    EXPECT_LT((at::cat(outputs) - expected.outputs).abs().max().item<double>(), 1e-13);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, PipelineTest,
                         testing::Combine(testing::Values(Pipelining::layerwise, Pipelining::gpipe,
                                                          Pipelining::one_f_one_b),
                                          testing::Values(1), testing::Bool(), testing::Bool()));
INSTANTIATE_TEST_SUITE_P(Interleaved, PipelineTest,
                         testing::Combine(testing::Values(Pipelining::interleaved), testing::Values(2),
                                          testing::Bool(), testing::Bool()));

/// How many further gradients a micro-batch brings for the embedding that gpt's head uses too. Layers: the
/// embedding, two of each block, the head.
std::size_t met_again(const std::vector<Range>& layers, int ranks, std::int64_t repeated_layers) {
  const auto model =
      models::find_model("gpt").make({.task = "language_modelling", .sample_shape = {8}, .vocabulary = 11},
                                     {{"layers", "2"}, {"heads", "2"}, {"width", "8"}});
  const auto found = parameters_met_again(*model, {.ranks = ranks, .layers = layers}, repeated_layers);
  for (const auto* parameter : found) EXPECT_EQ(parameter->name, "transformer.wte.weight");
  return found.size();
}

TEST(ParametersMetAgainTest, AreTiedOnesWhoseUsesARankWalksOverApart) {
  EXPECT_EQ(met_again({{0, 6}}, 1, 0), 0U) << "one walk adds both uses up";
  EXPECT_EQ(met_again({{0, 6}}, 1, 1), 1U) << "the embedding is walked over again";
  EXPECT_EQ(met_again({{0, 3}, {3, 6}}, 2, 0), 0U) << "the other use is another rank's";
  EXPECT_EQ(met_again({{0, 2}, {2, 3}, {3, 4}, {4, 6}}, 2, 0), 0U);
  EXPECT_EQ(met_again({{0, 2}, {2, 4}, {4, 6}}, 2, 0), 1U) << "the first and the last stage are one rank's";
}

/// Four linear layers, the second of which two further layers borrow from.
std::unique_ptr<models::Model> tied_layers() {
  std::vector<std::unique_ptr<models::Layer>> layers;
  for (const char* name : {"a", "b", "c", "d"})
    layers.push_back(std::make_unique<models::Linear>(name, 8, 8));
  for (int i = 0; i < 2; ++i) layers.push_back(std::make_unique<Borrower>(*layers[1]));
  return std::make_unique<PlainLayers>("tied", std::move(layers));
}

TEST(ParametersMetAgainTest, AreCountedAsOftenAsGradientsCome) {
  const std::vector<std::vector<Range>> all_cuts = {
      {{0, 6}}, {{0, 2}, {2, 6}}, {{0, 4}, {4, 6}}, {{0, 3}, {3, 5}, {5, 6}}};
  for (const auto& layers : all_cuts) {
    for (std::int64_t repeated = 0; repeated <= 6; ++repeated) {
      const auto model = tied_layers();
      model->initialise(1);
      int gradients = 0;
      auto& weight = model->layers()[1]->parameters().at(0);
      const GradientHooks hooks({&weight}, [&](std::size_t) { ++gradients; });
      at::Tensor flowing = at::ones({2, 8});
      std::vector<SegmentWalk> walks;
      std::vector<Passed> passed;
      for (const Range& stage : layers) {
        walks.emplace_back(*model, stage, repeat_first(stage, repeated));
        passed.push_back(walks.back().forward({flowing}, {}));
        flowing = passed.back().outputs().at(0);
      }
      models::Tensors back = {at::ones_like(flowing)};
      for (std::size_t i = walks.size(); i-- > 0;) back = walks[i].backward(passed[i], back);
      const auto found = parameters_met_again(*model, {.ranks = 1, .layers = layers}, repeated);
      EXPECT_EQ(std::ssize(found) + 1, gradients)
          << layers.size() << " stages of one rank, " << repeated << " layers repeated";
      for (const auto* parameter : found) EXPECT_EQ(parameter, &weight);
    }
  }
}

}  // namespace
}  // namespace dtrain::parallel
