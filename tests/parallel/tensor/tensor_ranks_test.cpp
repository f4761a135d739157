#include "parallel/tensor/tensor_ranks.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "parallel/job_of_test.hpp"

namespace dtrain::parallel {
namespace {

/// Different on every rank.
at::Tensor of_rank(int rank, at::IntArrayRef shape) {
  return at::sin(at::arange(at::IntArrayRef(shape).size() == 4 ? 2 * 3 * 5 * 4 : 7 * 3, at::kDouble) + rank)
      .reshape(shape);
}

at::Tensor sum_over_ranks(int ranks, at::IntArrayRef shape) {
  at::Tensor sum = of_rank(0, shape);
  for (int rank = 1; rank < ranks; ++rank) sum = sum + of_rank(rank, shape);
  return sum;
}

TEST(TensorRanksTest, WhatEntersHasTheSumOfTheGradients) {
  JobOfTest job;
  TensorRanks ranks(job.data());
  for (const auto& shape : {std::vector<std::int64_t>{7, 3}, {2, 3, 5, 4}}) {
    const at::Tensor x = at::ones(shape, at::kDouble).requires_grad_();
    const at::Tensor y = ranks.enter(x);
    EXPECT_TRUE(at::equal(y, x));
    y.backward(of_rank(job.rank(), shape));
    EXPECT_TRUE(at::allclose(x.grad(), sum_over_ranks(ranks.size(), shape), 1e-14, 1e-14));
  }
}

TEST(TensorRanksTest, WhatLeavesIsSummedAndEverySliceHasTheSumsGradient) {
  JobOfTest job;
  TensorRanks ranks(job.data());
  for (const auto& shape : {std::vector<std::int64_t>{7, 3}, {2, 3, 5, 4}}) {
    at::Tensor partial = of_rank(job.rank(), shape);
    // One rank's kernel has laid its images out otherwise than the others'.
    if (shape.size() == 4 && job.rank() == 0) partial = partial.contiguous(at::MemoryFormat::ChannelsLast);
    partial.requires_grad_();
    const at::Tensor y = ranks.leave(partial);
    EXPECT_TRUE(at::allclose(y, sum_over_ranks(ranks.size(), shape), 1e-14, 1e-14));
    const at::Tensor gradient = of_rank(99, shape);
    y.backward(gradient);
    EXPECT_TRUE(at::equal(partial.grad(), gradient));
  }
}

/// Tokens that divide among the ranks, that do not, and fewer than ranks.
TEST(TensorRanksTest, SharesOfTokensAreJoinedAndTheirGradientsSharedOut) {
  JobOfTest job;
  TensorRanks ranks(job.data());
  for (const std::int64_t tokens : {8, 7, 2, 1}) {
    const at::Tensor whole = at::sin(at::arange(3 * tokens * 5, at::kDouble)).reshape({3, tokens, 5});
    const Range own = models::share_of_tokens(tokens, job.rank(), ranks.size());
    const at::Tensor share = whole.narrow(1, own.begin, own.size()).clone().requires_grad_();
    const at::Tensor joined = ranks.gather(share, tokens);
    EXPECT_TRUE(at::equal(joined, whole));
    const at::Tensor sum = whole * (ranks.size() * (ranks.size() + 1) / 2.0);
    joined.backward(whole * (job.rank() + 1));
    EXPECT_TRUE(at::allclose(share.grad(), sum.narrow(1, own.begin, own.size()), 1e-14, 1e-14));

    const at::Tensor partial = (whole * (job.rank() + 1)).requires_grad_();
    const at::Tensor mine = ranks.scatter(partial);
    EXPECT_TRUE(at::allclose(mine, sum.narrow(1, own.begin, own.size()), 1e-14, 1e-14));
    mine.backward(whole.narrow(1, own.begin, own.size()));
    EXPECT_TRUE(at::equal(partial.grad(), whole));
  }
}

TEST(TensorRanksTest, TheProductOfWhatIsGatheredHasItsGradients) {
  JobOfTest job;
  TensorRanks ranks(job.data());
  const at::Tensor whole = at::sin(at::arange(3 * 7 * 5, at::kDouble)).reshape({3, 7, 5});
  const Range own = models::share_of_tokens(7, job.rank(), ranks.size());
  for (const bool with_bias : {true, false}) {
    const at::Tensor weight =
        of_rank(job.rank(), {7, 3}).reshape({-1}).narrow(0, 0, 20).reshape({4, 5}).clone();
    const auto gradients = [&](bool together) {
      const at::Tensor share = whole.narrow(1, own.begin, own.size()).clone().requires_grad_();
      const at::Tensor w = weight.clone().requires_grad_();
      const at::Tensor b = with_bias ? at::ones({4}, at::kDouble).requires_grad_() : at::Tensor();
      const at::Tensor y =
          together ? ranks.gather_linear(share, 7, w, b) : at::linear(ranks.gather(share, 7), w, b);
      y.backward(at::cos(y.detach()));
      return std::vector<at::Tensor>{y, share.grad(), w.grad(), with_bias ? b.grad() : w.grad()};
    };
    const auto expected = gradients(false);
    const auto found = gradients(true);
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-13, 1e-13)) << i;
    }
  }
}

TEST(TensorRanksTest, TheLargestAndTheVolume) {
  JobOfTest job;
  TensorRanks ranks(job.data());
  at::Tensor values = at::full({3}, job.rank(), at::kFloat);
  ranks.max(values);
  EXPECT_EQ(values.max().item<float>(), ranks.size() - 1);
  ranks.sum(values);
  EXPECT_EQ(values.min().item<float>(), (ranks.size() - 1) * ranks.size());
  EXPECT_EQ(ranks.bytes_summed(), 24);
  at::Tensor none = at::empty({0}, at::kFloat);
  ranks.sum(none);
  EXPECT_EQ(ranks.bytes_summed(), 24);
}

models::DatasetFacts facts_for(const std::string& model) {
  if (model == "gpt")
    return {.task = "language_modelling", .sample_shape = {16}, .classes = 0, .vocabulary = 65};
  if (model == "seq2seq")
    return {.task = "translation", .sample_shape = {17}, .vocabulary = 40, .target_vocabulary = 50};
  return {.task = "image_classification", .sample_shape = {3, 32, 32}, .classes = 10};
}

TEST(TensorRanksTest, TheVolumeOfAStepIsThatOfTheFormula) {
  JobOfTest job;
  if (job.data().size() == 1) GTEST_SKIP() << "one rank sums nothing";
  const std::map<std::string, models::ModelOptions> models = {
      {"mlp", {}},
      {"cnn", {}},
      {"vgg11", {{"width", "8"}, {"hidden", "32"}}},
      {"resnet18", {{"width", "8"}}},
      {"conv_autoencoder", {}},
      {"gpt", {{"layers", "2"}, {"heads", "6"}, {"width", "24"}}},
      {"seq2seq", {{"teacher-forcing", "1"}, {"embedding", "8"}, {"hidden", "12"}}}};
  for (const auto& [name, options] : models) {
    TensorRanks ranks(job.data());
    const auto facts = facts_for(name);
    const auto model = models::find_model(name).make(facts, options);
    model->slice(ranks);
    model->initialise(1);
    const auto shapes = model->input_shapes(3, facts.sample_shape);
    const bool ids = facts.vocabulary > 0;
    const at::Tensor input = ids ? at::full(shapes[0], 5, at::kInt) : at::ones(shapes[0]);
    models::Tensors flowing = {input};
    if (shapes.size() > 1) flowing.push_back(input);
    for (const auto& layer : model->layers()) flowing = layer->forward(flowing, {.step = 1});
    const at::Tensor targets = ids                                        ? at::zeros({3, 16}, at::kLong)
                               : model->goal() == models::Goal::own_input ? input
                                                                          : at::zeros({3}, at::kLong);
    model->loss(flowing, targets).loss.backward();
    const double of_loss = ids ? 3.0 * 3 * 16 * 4 : 0.0;
    EXPECT_DOUBLE_EQ(static_cast<double>(ranks.bytes_summed()), bytes_of_sums(*model, shapes) + of_loss)
        << name;
  }
}

}  // namespace
}  // namespace dtrain::parallel
