// What --kernels fused joins, beside LibTorch's operators one by one.
#include <cmath>

#include "models/compute/precision.hpp"
#include "models/layers/fused_norm.hpp"
#include "models/losses/fused_token_loss.hpp"
#include "models/losses/token_loss.hpp"
#include "models/networks/gpt_layers.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>() /
         std::max(1e-12, b.to(at::kDouble).norm().item<double>());
}

at::Tensor gradient_of(const at::Tensor& loss, const at::Tensor& leaf) {
  loss.backward();
  return leaf.grad();
}

TEST(FusedTokenLoss, EqualsTheCrossEntropyOfTheWordsAlone) {
  at::manual_seed(1);
  constexpr std::int64_t kWords = 50;
  const at::Tensor values = at::randn({33, 64}) * 3;
  const at::Tensor targets = at::randint(0, kWords, {33}, at::kLong);
  const at::Tensor plain = values.clone().requires_grad_();
  const at::Tensor wanted = token_cross_entropy_sums(plain.narrow(1, 0, kWords), targets).loss;
  const at::Tensor fused = values.clone().requires_grad_();
  const auto sums = fused_token_loss_sums(fused * 1.0, targets, kWords);
  EXPECT_EQ(sums.weight, 33);
  EXPECT_LT(distance(sums.loss, wanted), 1e-6);
  EXPECT_LT(distance(gradient_of(sums.loss * 0.5, fused), gradient_of(wanted * 0.5, plain)), 1e-6);
  EXPECT_EQ(fused.grad().narrow(1, kWords, 14).abs().max().item<float>(), 0.0F);
}

TEST(FusedTokenLoss, TakesHalfPrecisionAndSumsInFloat) {
  at::manual_seed(2);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor values = (at::randn({40, 320}) * 3).to(type);
    const at::Tensor targets = at::randint(0, 257, {40}, at::kLong);
    const at::Tensor plain = values.to(at::kFloat).requires_grad_();
    const at::Tensor wanted = token_cross_entropy_sums(plain.narrow(1, 0, 257), targets).loss;
    const at::Tensor fused = values.clone().requires_grad_();
    const at::Tensor loss = fused_token_loss(fused * 1.0, targets, 257);
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    EXPECT_LT(distance(loss, wanted), 1e-6);
    const double rounding = type == at::kHalf ? 0x1p-11 : 0x1p-8;
    EXPECT_LT(distance(gradient_of(loss, fused), gradient_of(wanted, plain)), rounding);
  }
}

TEST(FusedTokenLoss, WritesTheGradientOverTheLogits) {
  const at::Tensor leaf = at::randn({4, 64}).requires_grad_();
  const at::Tensor logits = leaf * 1.0;
  const at::Tensor loss = fused_token_loss(logits, at::zeros({4}, at::kLong), 60);
  loss.backward();
  EXPECT_TRUE(logits.detach().equal(leaf.grad()));
}

TEST(FusedTokenLoss, LeavesWhatItDoesNotTake) {
  EXPECT_FALSE(takes_fused_token_loss(at::zeros({2, 8}, at::kDouble)));
  EXPECT_FALSE(takes_fused_token_loss(at::zeros({2, 8}).narrow(1, 0, 5)));
  EXPECT_TRUE(takes_fused_token_loss(at::zeros({2, 8}, at::kHalf)));
  EXPECT_EQ(fused_token_loss(at::zeros({0, 8}), at::zeros({0}, at::kLong), 5).item<float>(), 0.0F);
}

TEST(FusedNorm, EqualsTheNormAndAddsUpBothGradients) {
  at::manual_seed(3);
  const std::array values = {at::randn({3, 7, 48}), at::randn({48}), at::randn({48})};
  const at::Tensor factor = at::randn({3, 7, 48});
  const auto train = [&](Kernels kernels, std::optional<at::ScalarType> half) {
    const KernelScope scope(kernels);
    const ProductScope products(half);
    std::vector<at::Tensor> leaves;
    for (const auto& value : values) leaves.push_back(value.clone().requires_grad_());
    const auto [input, normed] = normed_input(leaves[0], leaves[1], leaves[2], 1e-5, product_type());
    EXPECT_EQ(normed.scalar_type(), kernels == Kernels::fused && half ? *half : at::kFloat);
    ((input + normed.to(at::kFloat)) * factor).sum().backward();
    return std::vector{normed.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
  };
  const auto wanted = train(Kernels::own, std::nullopt);
  const auto fused = train(Kernels::fused, std::nullopt);
  const auto halves = train(Kernels::fused, at::kBFloat16);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_LT(distance(fused[i], wanted[i]), 1e-6) << i;
    EXPECT_LT(distance(halves[i], wanted[i]), 0x1p-7) << i;
  }
}

TEST(FusedNorm, AResultThatIsNotUsedNeedsNoGradient) {
  const KernelScope scope(Kernels::fused);
  const at::Tensor ones = at::ones({4});
  const at::Tensor first = at::randn({2, 4}).requires_grad_();
  normed_input(first, ones, ones, 1e-5, product_type()).input.sum().backward();
  EXPECT_TRUE(first.grad().equal(at::ones({2, 4})));
  const at::Tensor second = at::randn({2, 4}).requires_grad_();
  normed_input(second, ones, ones, 1e-5, product_type()).normed.square().sum().backward();
  EXPECT_LT(second.grad().sum().abs().item<float>(), 1e-4F);  // a norm ignores what all have in common
}

struct Trained {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
  std::vector<Shape> shapes;
};

/// One step of gpt with an odd vocabulary; fused kernels see it padded.
Trained train_gpt(Kernels kernels, std::optional<at::ScalarType> half, double label_smoothing = 0) {
  auto model = find_model("gpt").make(
      {.task = "language_modelling", .sample_shape = {16}, .vocabulary = 65},
      {{"layers", "2"}, {"heads", "2"}, {"width", "32"}, {"block", "16"}, {"dropout", "0"}});
  model->initialise(1);
  at::manual_seed(4);
  const at::Tensor ids = at::randint(0, 65, {3, 16}, at::kInt);
  const at::Tensor targets = at::randint(0, 65, {3, 16}, at::kLong);
  const Context context{.mode = Mode::training, .half = half, .kernels = kernels};
  Tensors flowing = {ids};
  for (auto& layer : model->layers()) flowing = layer->run(flowing, context);
  EXPECT_EQ(flowing[0].size(2), kernels == Kernels::fused ? 128 : 65);
  const KernelScope scope(kernels);
  const auto sums = model->training_loss(kernels == Kernels::fused ? flowing : in_full(flowing), targets,
                                         {.label_smoothing = label_smoothing});
  sums.loss.backward();
  Trained trained{.loss = sums.loss.detach()};
  for (const Parameter* parameter : model->parameters()) {
    trained.gradients.push_back(parameter->value.grad());
    trained.shapes.push_back(parameter->value.sizes().vec());
  }
  return trained;
}

TEST(FusedGpt, TrainsAsTheOperatorsOneByOne) {
  for (const double smoothing : {0.0, 0.1}) {
    const Trained wanted = train_gpt(Kernels::own, std::nullopt, smoothing);
    const Trained fused = train_gpt(Kernels::fused, std::nullopt, smoothing);
    EXPECT_LT(distance(fused.loss, wanted.loss), 1e-6);
    EXPECT_EQ(fused.shapes, wanted.shapes);  // what a checkpoint has
    for (std::size_t i = 0; i < wanted.gradients.size(); ++i) {
      EXPECT_LT(distance(fused.gradients[i], wanted.gradients[i]), 1e-5) << i;
    }
  }
}

TEST(FusedGpt, IsAsNearInHalfPrecision) {
  const Trained full = train_gpt(Kernels::own, std::nullopt);
  const Trained plain = train_gpt(Kernels::own, at::kBFloat16);
  const Trained fused = train_gpt(Kernels::fused, at::kBFloat16);
  EXPECT_LT(distance(fused.loss, full.loss), 2 * distance(plain.loss, full.loss) + 1e-3);
  for (std::size_t i = 0; i < full.gradients.size(); ++i) {
    const double bound = 3 * distance(plain.gradients[i], full.gradients[i]) + 1e-3;
    EXPECT_LT(distance(fused.gradients[i], full.gradients[i]), bound) << i;
  }
}

TEST(FusedGpt, EvaluationHasTheWordsAlone) {
  auto model = find_model("gpt").make({.task = "language_modelling", .sample_shape = {16}, .vocabulary = 65},
                                      {{"layers", "1"}, {"heads", "2"}, {"width", "32"}, {"block", "16"}});
  model->initialise(1);
  const Context context{.mode = Mode::evaluation, .kernels = Kernels::fused};
  Tensors flowing = {at::zeros({1, 16}, at::kInt)};
  for (auto& layer : model->layers()) flowing = layer->run(flowing, context);
  EXPECT_EQ(flowing[0].size(2), 65);
}

}  // namespace
}  // namespace dtrain::models
