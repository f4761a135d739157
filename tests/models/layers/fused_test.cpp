// What --kernels fused joins, beside LibTorch's operators one by one.
#include <cmath>
#include <deque>
#include <functional>

#include "models/compute/gradient_place.hpp"
#include "models/compute/loss_scope.hpp"
#include "models/compute/precision.hpp"
#include "models/compute/sample_tap.hpp"
#include "models/layers/batch_norm2d.hpp"
#include "models/layers/fused/fused_conv.hpp"
#include "models/layers/fused/fused_linear.hpp"
#include "models/layers/fused/fused_lookup.hpp"
#include "models/layers/fused/fused_max_pool.hpp"
#include "models/layers/fused/fused_norm.hpp"
#include "models/layers/fused/fused_perceptron.hpp"
#include "models/layers/fused/product_gradients.hpp"
#include "models/losses/chunked_token_loss.hpp"
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

TEST(ChunkedTokenLoss, HasTheGradientsOfAllLogitsAtOnce) {
  at::manual_seed(7);
  constexpr std::int64_t kWords = 50;
  const std::array values = {at::randn({33, 16}), at::randn({kWords, 16})};
  const at::Tensor targets = at::randint(0, kWords, {33}, at::kLong);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto train = [&](std::int64_t rows, at::ScalarType of) {
      const at::Tensor input = values[0].detach().to(of, false, true).requires_grad_();
      const at::Tensor words = values[1].detach().to(of, false, true).requires_grad_();
      const at::Tensor loss = rows == 0 ? token_cross_entropy_sums(at::linear(input, words), targets).loss
                                        : chunked_token_loss(input, {words, words}, targets, rows);
      (loss * 0.5).backward();
      return std::vector{loss.detach(), input.grad(), words.grad()};
    };
    const auto full = train(0, at::kFloat);
    const auto whole = train(0, type);
    for (const std::int64_t rows : {1, 7, 33, 100}) {
      const auto pieces = train(rows, type);
      EXPECT_EQ(pieces[1].scalar_type(), type);
      for (std::size_t i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(pieces[i].sizes(), whole[i].sizes());
        EXPECT_LT(distance(pieces[i], full[i]), 2 * distance(whole[i], full[i]) + 1e-5) << i << " " << rows;
      }
    }
  }
}

TEST(ChunkedTokenLoss, TakesAsManyRowsAsItsMemoryHolds) {
  EXPECT_EQ(padded_columns(50257), 50304);
  EXPECT_EQ(padded_columns(64), 64);
  EXPECT_EQ(rows_at_once(50304, 2), 10624) << "of 10672, whole tiles";
  EXPECT_EQ(rows_of_piece(16384, 10624), 8192);
  EXPECT_EQ(rows_of_piece(10000, 10624), 10000 / 128 * 128 + 128);
  EXPECT_EQ(rows_of_piece(33, 10), 10);
  EXPECT_EQ(rows_of_piece(0, 10), 1);
  EXPECT_EQ(rows_at_once(1000, 4, 40000), 10);
  EXPECT_EQ(rows_at_once(1000, 4, 10), 1);
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
    const auto [input, normed] = normed_input({leaves[0]}, {leaves[1], leaves[2]}, 1e-5, product_type());
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
  normed_input({first}, {ones, ones}, 1e-5, product_type()).input.sum().backward();
  EXPECT_TRUE(first.grad().equal(at::ones({2, 4})));
  const at::Tensor second = at::randn({2, 4}).requires_grad_();
  normed_input({second}, {ones, ones}, 1e-5, product_type()).normed.square().sum().backward();
  EXPECT_LT(second.grad().sum().abs().item<float>(), 1e-4F);  // a norm ignores what all have in common
}

TEST(FusedNorm, AddsUpTwoTermsAsTheirSumDoes) {
  at::manual_seed(5);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const std::array values = {at::randn({3, 7, 48}), at::randn({3, 7, 48}).to(type), at::randn({48}),
                               at::randn({48})};
    const at::Tensor factor = at::randn({3, 7, 48});
    const auto train = [&](bool joined) {
      const KernelScope scope(Kernels::fused);
      std::vector<at::Tensor> leaves;
      for (const auto& value : values) leaves.push_back(value.clone().requires_grad_());
      const Tensors inputs = joined ? Tensors{leaves[0], leaves[1]} : Tensors{leaves[0] + leaves[1]};
      const auto [input, normed] = normed_input(inputs, {leaves[2], leaves[3]}, 1e-5, at::kFloat);
      ((input + normed) * factor).sum().backward();
      std::vector found = {input.detach(), normed.detach()};
      for (const auto& leaf : leaves) found.push_back(leaf.grad());
      return found;
    };
    const auto wanted = train(false);
    const auto joined = train(true);
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(joined[i].equal(wanted[i])) << i;
  }
}

/// Leaves with copies of `values`.
std::deque<Parameter> parameters_of(const std::vector<at::Tensor>& values) {
  std::deque<Parameter> made;
  for (const at::Tensor& value : values)
    made.push_back({.name = "p", .value = value.clone().requires_grad_(), .init = {}});
  return made;
}

using Leaves = std::deque<Parameter>;

/// A layer's form that joins operations, and LibTorch's operators: `leaves` are the input and the parameters.
struct TwoForms {
  std::function<at::Tensor(const Leaves& leaves)> joined;
  std::function<at::Tensor(const Leaves& leaves)> by_operators;
  std::function<at::Tensor(const at::Tensor& y)> loss;
  Kernels of_operators = Kernels::own;
};

/// In `half` the joined form's result and gradients may be so many `times` as far from those of operators in
/// full precision as these are in `half`, and a little `more`.
void expect_as_near(const std::vector<at::Tensor>& values, at::ScalarType half, const TwoForms& forms,
                    double times, double more) {
  const auto train = [&](bool joined, std::optional<at::ScalarType> precision) {
    const KernelScope scope(joined ? Kernels::fused : forms.of_operators);
    const ProductScope products(precision);
    const Leaves leaves = parameters_of(values);
    EXPECT_EQ(takes_product_gradients(leaves[0].value, leaves[1]), joined);
    const at::Tensor y = joined ? forms.joined(leaves) : forms.by_operators(leaves);
    forms.loss(y.to(at::kFloat)).backward();
    std::vector<at::Tensor> found = {y.detach()};
    for (const auto& leaf : leaves) found.push_back(leaf.value.grad());
    return found;
  };
  const auto exact = train(false, std::nullopt);
  const auto plain = train(false, half);
  const auto joined = train(true, half);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    EXPECT_EQ(joined[i].sizes(), exact[i].sizes());
    EXPECT_EQ(joined[i].scalar_type(), plain[i].scalar_type()) << i;
    EXPECT_LT(distance(joined[i], exact[i]), times * distance(plain[i], exact[i]) + more) << i;
  }
}

TEST(FusedLinear, IsTheLinearLayerInHalfPrecisionWithGradientsInFloat) {
  at::manual_seed(9);
  for (const auto half : {at::kBFloat16, at::kHalf}) {
    const std::vector values = {at::randn({3, 5, 16}), at::randn({24, 16}) * 0.3, at::randn({24})};
    const at::Tensor factor = at::randn({3, 5, 24});
    const TwoForms forms{
        .joined = [](const Leaves& of) { return fused_linear(of[0].value, of[1], of[2]); },
        .by_operators = [](const Leaves& of) { return at::linear(of[0].value, of[1].value, of[2].value); },
        .loss = [&](const at::Tensor& y) { return (y * factor).sum(); }};
    expect_as_near(values, half, forms, 1.5, 1e-6);
  }
}

TEST(FusedLinear, LeavesGradientsWhereTheyAreCollected) {
  at::manual_seed(10);
  const KernelScope scope(Kernels::fused);
  const ProductScope products(at::kBFloat16);
  auto leaves = parameters_of({at::randn({4, 16}), at::randn({8, 16}), at::randn({8})});
  const at::Tensor flat = at::full({8 * 16 + 8}, NAN);
  const at::Tensor of_weight = flat.narrow(0, 0, 8 * 16).view({8, 16});
  const at::Tensor of_bias = flat.narrow(0, 8 * 16, 8);
  GradientPlace weight_place(leaves[1]);
  GradientPlace bias_place(leaves[2]);
  weight_place.offer(of_weight.alias());
  bias_place.offer(of_bias.alias());
  const auto train = [&] {
    fused_linear(leaves[0].value, leaves[1], leaves[2]).to(at::kFloat).square().sum().backward();
  };
  train();
  EXPECT_EQ(leaves[1].value.grad().data_ptr(), of_weight.data_ptr());
  EXPECT_EQ(leaves[2].value.grad().data_ptr(), of_bias.data_ptr());
  const at::Tensor once = flat.clone();
  EXPECT_TRUE(once.isfinite().all().item<bool>());
  train();  // nothing is offered any more: added to what is there
  EXPECT_LT(distance(leaves[1].value.grad(), 2 * once.narrow(0, 0, 8 * 16).view({8, 16})), 1e-6);
  EXPECT_LT(distance(leaves[2].value.grad(), 2 * once.narrow(0, 8 * 16, 8)), 1e-6);
}

TEST(FusedNorm, LeavesGradientsWhereTheyAreCollected) {
  const KernelScope scope(Kernels::fused);
  auto leaves = parameters_of({at::rand({4, 16}), at::rand({16}), at::rand({16})});
  const at::Tensor flat = at::full({2, 16}, NAN);
  GradientPlace weight_place(leaves[1]);
  GradientPlace bias_place(leaves[2]);
  weight_place.offer(flat[0].alias());
  bias_place.offer(flat[1].alias());
  const auto train = [&](const Parameter* weight, const Parameter* bias) {
    const NormWeights weights{leaves[1].value, leaves[2].value, weight, bias};
    normed_input({leaves[0].value}, weights, 1e-5, at::kFloat).normed.square().sum().backward();
    return at::stack({leaves[1].value.grad(), leaves[2].value.grad()});
  };
  const at::Tensor placed = train(&leaves[1], &leaves[2]);
  EXPECT_TRUE(flat.equal(placed));
  EXPECT_EQ(leaves[1].value.grad().data_ptr(), flat.data_ptr());
  for (auto& leaf : leaves) leaf.value.mutable_grad().reset();
  EXPECT_TRUE(train(nullptr, nullptr).equal(placed));
}

TEST(FusedLinear, AFrozenParameterHasNoGradient) {
  const KernelScope scope(Kernels::fused);
  const ProductScope products(at::kBFloat16);
  auto leaves = parameters_of({at::ones({2, 8}), at::ones({8, 8}), at::ones({8})});
  leaves[1].value.requires_grad_(false);
  fused_linear(leaves[0].value, leaves[1], leaves[2]).sum().backward();
  EXPECT_FALSE(leaves[1].value.grad().defined());
  EXPECT_TRUE(leaves[2].value.grad().equal(at::full({8}, 2.0)));
  EXPECT_TRUE(leaves[0].value.grad().equal(at::full({2, 8}, 8.0)));
}

/// A table of words whose rows go in and whose product comes out.
struct TiedWords {
  TiedWords(const at::Tensor& values, at::Tensor read, at::Tensor wanted)
      : leaves(parameters_of({values})), ids(std::move(read)), targets(std::move(wanted)) {}
  Parameter& table() { return leaves[0]; }
  at::Tensor joined_loss() {
    const at::Tensor rows = fused_lookup(table(), ids).flatten(0, 1).sin();
    const OutputWords words{table().value, table().value.detach(), &table()};
    return chunked_token_loss(rows, words, targets, 7) * 0.5;
  }
  at::Tensor plain_loss() {
    const at::Tensor rows = at::embedding(table().value, ids).flatten(0, 1).sin();
    return token_cross_entropy_sums(at::linear(rows, table().value), targets).loss * 0.5;
  }
  std::decay_t<decltype(parameters_of({}))> leaves;
  at::Tensor ids, targets;
};

TEST(FusedLookup, AddsItsRowsToWhatTheOutputLayerHasLeft) {
  at::manual_seed(11);
  const KernelScope scope(Kernels::fused);
  const at::Tensor ids = at::randint(0, 20, {3, 11}, at::kLong);  // of 50 words, and some of them often
  const at::Tensor targets = at::randint(0, 50, {33}, at::kLong);
  const at::Tensor values = at::randn({50, 16});
  TiedWords plain(values, ids, targets);
  const at::Tensor wanted = gradient_of(plain.plain_loss(), plain.table().value);

  TiedWords alone(values, ids, targets);
  EXPECT_TRUE(takes_fused_lookup(alone.table()));
  EXPECT_LT(distance(gradient_of(alone.joined_loss(), alone.table().value), wanted), 1e-5) << "no place";

  TiedWords placed(values, ids, targets);
  GradientPlace place(placed.table());
  const at::Tensor memory = at::full({50, 16}, NAN);
  place.offer(memory.alias());
  placed.joined_loss().backward();
  EXPECT_EQ(placed.table().value.grad().data_ptr(), memory.data_ptr()) << "and no gradient of its own";
  EXPECT_LT(distance(memory, wanted), 1e-5);
  place.withdraw();
  placed.joined_loss().backward();  // a second micro-batch: added to what is there
  EXPECT_EQ(placed.table().value.grad().data_ptr(), memory.data_ptr());
  EXPECT_LT(distance(memory, 2 * wanted), 1e-5);
}

TEST(FusedLookup, OfNoIdsHasNoGradient) {
  const KernelScope scope(Kernels::fused);
  auto leaves = parameters_of({at::ones({5, 4})});
  fused_lookup(leaves[0], at::zeros({0, 3}, at::kLong)).sum().backward();
  EXPECT_TRUE(leaves[0].value.grad().equal(at::zeros({5, 4})));
}

TEST(FusedLookup, IsNotForOneSampleAtATimeNorForATableThatStays) {
  auto leaves = parameters_of({at::zeros({5, 4})});
  EXPECT_FALSE(takes_fused_lookup(leaves[0])) << "no fused kernels";
  const KernelScope scope(Kernels::fused);
  EXPECT_TRUE(takes_fused_lookup(leaves[0]));
  {
    SampleTap tap({});
    const SampleTap::Scope taken(tap);
    EXPECT_FALSE(takes_fused_lookup(leaves[0]));
  }
  leaves[0].value.requires_grad_(false);
  EXPECT_FALSE(takes_fused_lookup(leaves[0]));
}

TEST(FusedPerceptron, IsThePerceptronWithGeluInItsTanhForm) {
  at::manual_seed(6);
  for (const auto half : {at::kBFloat16, at::kHalf}) {
    const std::vector values = {at::randn({3, 5, 16}), at::randn({64, 16}) * 0.3, at::randn({64}),
                                at::randn({16, 64}) * 0.2, at::randn({16})};
    const at::Tensor factor = at::randn({3, 5, 16});
    const TwoForms forms{.joined =
                             [](const Leaves& of) {
                               return fused_perceptron(of[0].value, {of[1], of[2], of[3], of[4]});
                             },
                         .by_operators =
                             [](const Leaves& of) {
                               const at::Tensor inner = at::linear(of[0].value, of[1].value, of[2].value);
                               return at::linear(at::gelu(inner), of[3].value, of[4].value);
                             },
                         .loss = [&](const at::Tensor& y) { return (y * factor).sum(); }};
    expect_as_near(values, half, forms, 2, 5e-4);
  }
}

TEST(FusedPerceptron, TheTanhFormDiffersByLessThanHalfPrecisionRounds) {
  const at::Tensor x = at::linspace(-8, 8, 100001, at::kDouble);
  const at::Tensor exact = at::gelu(x);
  const at::Tensor gap = (at::gelu(x, "tanh") - exact).abs();
  EXPECT_LT(gap.max().item<double>(), 5e-4);
  EXPECT_TRUE(gap.le(0x1p-9 * exact.abs().clamp_min(0.25)).all().item<bool>()) << "half a unit of bf16";
}

TEST(ProductGradients, AreForTrainingInHalfPrecision) {
  const at::Tensor x = at::zeros({2, 8});
  const auto leaves = parameters_of({at::zeros({8, 8}), at::zeros({8, 8}, at::kDouble)});
  EXPECT_FALSE(takes_product_gradients(x, leaves[0]));
  const KernelScope scope(Kernels::fused);
  EXPECT_FALSE(takes_product_gradients(x, leaves[0])) << "in full precision";
  const ProductScope products(at::kBFloat16);
  EXPECT_TRUE(takes_product_gradients(x, leaves[0]));
  EXPECT_FALSE(takes_product_gradients(x, leaves[1])) << "a parameter in double";
  {
    SampleTap tap({});
    const SampleTap::Scope taken(tap);
    EXPECT_FALSE(takes_product_gradients(x, leaves[0])) << "of each sample";
  }
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(takes_product_gradients(x, leaves[0])) << "evaluation has the form of the checkpoint's users";
}

/// Images in half precision on the CPU, which its own kernels do not take.
TEST(FusedBatchNorm, IsTheLayersOwnInHalfPrecision) {
  at::manual_seed(8);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const bool has_residual : {false, true}) {
      const at::Tensor data = at::randn({4, 24, 5, 6}) * 2 + 1;
      const at::Tensor beside = at::randn({4, 24, 5, 6});
      const at::Tensor above = at::randn({4, 24, 5, 6});
      const auto train = [&](Kernels kernels, at::ScalarType of) {
        const KernelScope scope(kernels);
        std::vector<Parameter> parameters;
        std::vector<Buffer> buffers;
        const BatchNorm place = BatchNorm::add("bn", 24, parameters, buffers, Slicing::none);
        {
          const at::NoGradGuard no_grad;
          parameters[0].value.copy_(at::linspace(0.5, 1.5, 24));
          parameters[1].value.copy_(at::linspace(-0.5, 0.5, 24));
        }
        const at::Tensor x = data.detach().to(of, false, true).requires_grad_();
        const at::Tensor residual = beside.detach().to(of, false, true).requires_grad_();
        const at::Tensor y = batch_norm(
            {.input = x, .residual = has_residual ? residual : at::Tensor(), .then = kernels::Then::relu},
            place, parameters, buffers, Context{.mode = Mode::training});
        (y.to(at::kFloat) * above).sum().backward();
        std::vector found = {
            y.detach(),          x.grad(),           parameters[0].value.grad(), parameters[1].value.grad(),
            buffers[0].step_sum, buffers[1].step_sum};
        if (has_residual) found.push_back(residual.grad());
        EXPECT_EQ(buffers[0].step_weight, 4);
        return found;
      };
      const auto exact = train(Kernels::own, at::kFloat);
      const auto plain = train(Kernels::own, type);
      const auto fused = train(Kernels::fused, type);
      for (std::size_t i = 0; i < exact.size(); ++i) {
        EXPECT_EQ(fused[i].scalar_type(), plain[i].scalar_type()) << i;
        EXPECT_LT(distance(fused[i], exact[i]), 1.5 * distance(plain[i], exact[i]) + 1e-6)
            << i << " residual " << has_residual;
      }
    }
  }
}

TEST(FusedConv, IsTheConvolutionInHalfPrecision) {
  at::manual_seed(11);
  const std::vector values = {at::randn({3, 4, 7, 6}), at::randn({8, 4, 3, 3}) * 0.2, at::randn({8})};
  for (const Conv2d::Geometry geometry : {Conv2d::Geometry{4, 8, 3, 1, 1}, {4, 8, 3, 2, 0}}) {
    const TwoForms forms{
        .joined = [&](const Leaves& of) { return fused_conv(of[0].value, of[1], of[2], geometry); },
        .by_operators =
            [&](const Leaves& of) {
              return at::conv2d(of[0].value, of[1].value, of[2].value, geometry.stride, geometry.padding);
            },
        .loss = [](const at::Tensor& y) { return y.square().sum(); },
        .of_operators = Kernels::libtorch};
    expect_as_near(values, at::kBFloat16, forms, 1.5, 1e-6);
  }
}

TEST(FusedMaxPool, HasLibTorchsMaximaAndGradients) {
  at::manual_seed(12);
  for (const auto type : {at::kHalf, at::kBFloat16}) {
    for (const Shape& shape : {Shape{2, 16, 8, 6}, {3, 5, 7, 9}, {1, 8, 2, 3}}) {
      const at::Tensor images =
          (at::randn(shape) * 2).round().to(type).contiguous(kChannelsLast);  // with equals
      const auto train = [&](bool fused) {
        const KernelScope scope(fused ? Kernels::fused : Kernels::libtorch);
        const at::Tensor leaf = images.clone().requires_grad_();
        EXPECT_EQ(takes_fused_max_pool(leaf), fused);
        const at::Tensor y = fused ? fused_max_pool(leaf) : at::max_pool2d(leaf, 2, 2);
        (y.to(at::kFloat) * at::arange(y.numel()).view(y.sizes()).remainder(7)).sum().backward();
        return std::vector{y.detach(), leaf.grad()};
      };
      const auto wanted = train(false);
      const auto found = train(true);
      EXPECT_TRUE(found[0].equal(wanted[0]));
      EXPECT_TRUE(found[1].equal(wanted[1]));
      EXPECT_TRUE(found[1].is_contiguous(kChannelsLast));
    }
  }
  const KernelScope scope(Kernels::fused);
  EXPECT_FALSE(takes_fused_max_pool(at::zeros({1, 2, 2, 2}))) << "the CPU's own kernels take it";
  EXPECT_FALSE(takes_fused_max_pool(at::zeros({1, 2, 4, 4}, at::kHalf))) << "channels first";
}

struct Trained {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
  std::vector<Shape> shapes;
};

/// One step of gpt with an odd vocabulary; fused kernels see it padded.
/// `joined`: the residual additions, too, where the layers join them.
Trained train_gpt(Kernels kernels, std::optional<at::ScalarType> half, double label_smoothing = 0,
                  bool joined = false) {
  auto model = find_model("gpt").make(
      {.task = "language_modelling", .sample_shape = {16}, .vocabulary = 65},
      {{"layers", "2"}, {"heads", "2"}, {"width", "32"}, {"block", "16"}, {"dropout", "0.1"}});
  model->initialise(1);
  at::manual_seed(4);
  const at::Tensor ids = at::randint(0, 65, {3, 16}, at::kInt);
  const at::Tensor targets = at::randint(0, 65, {3, 16}, at::kLong);
  Context context{.mode = Mode::training, .half = half, .kernels = kernels};
  Tensors flowing = {ids};
  for (const auto& layer : model->layers()) {
    context.joins_next = joined && &layer != &model->layers().back();
    flowing = layer->run(flowing, context);
    const bool sums = &layer != &model->layers().front() && context.joins_next;
    EXPECT_EQ(flowing.size(), sums && kernels == Kernels::fused ? 2U : 1U) << layer->name();
  }
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

TEST(FusedGpt, ResidualAdditionsJoinTheNextNormWithoutAnotherResult) {
  for (const auto half : {std::optional<at::ScalarType>(), std::optional(at::kBFloat16)}) {
    const Trained apart = train_gpt(Kernels::fused, half);
    const Trained joined = train_gpt(Kernels::fused, half, 0, true);
    EXPECT_TRUE(joined.loss.equal(apart.loss));
    for (std::size_t i = 0; i < apart.gradients.size(); ++i)
      EXPECT_TRUE(joined.gradients[i].equal(apart.gradients[i])) << i;
  }
  const Trained plain = train_gpt(Kernels::own, std::nullopt, 0, true);  // hands on sums all the same
  EXPECT_TRUE(plain.loss.equal(train_gpt(Kernels::own, std::nullopt).loss));
}

TEST(FusedGpt, TheLossTakesTheFactorsOfTheLogits) {
  auto model = find_model("gpt").make(
      {.task = "language_modelling", .sample_shape = {16}, .vocabulary = 65},
      {{"layers", "1"}, {"heads", "2"}, {"width", "32"}, {"block", "16"}, {"dropout", "0"}});
  model->initialise(1);
  at::manual_seed(4);
  const at::Tensor ids = at::randint(0, 65, {3, 16}, at::kInt);
  const at::Tensor targets = at::randint(0, 65, {3, 16}, at::kLong);
  const auto train = [&](bool factors) {
    const Context context{.mode = Mode::training, .kernels = Kernels::fused};
    const LossScope loss_scope(factors);
    Tensors flowing = {ids};
    std::vector<Shape> shapes = {{3, 16}};
    for (const auto& layer : model->layers()) {
      flowing = layer->run(flowing, context);
      const KernelScope kernels(Kernels::fused);
      shapes = layer->output_shapes(shapes);
    }
    if (factors) {
      EXPECT_EQ(flowing.size(), 2U);
      for (std::size_t i = 0; i < flowing.size(); ++i) EXPECT_EQ(shapes.at(i), flowing[i].sizes().vec());
    }
    const KernelScope scope(Kernels::fused);
    const auto sums = model->training_loss(flowing, targets, {});
    sums.loss.backward();
    std::vector<at::Tensor> found = {sums.loss.detach()};
    for (Parameter* parameter : model->parameters()) {
      found.push_back(parameter->value.grad());
      parameter->value.mutable_grad().reset();
    }
    return found;
  };
  const auto wanted = train(false);
  const auto found = train(true);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_LT(distance(found[i], wanted[i]), 1e-5) << i;
  EXPECT_FALSE(loss_may_take_factors(Kernels::own, {}, {}));
  EXPECT_FALSE(loss_may_take_factors(Kernels::fused, at::kHalf, {}));
  EXPECT_FALSE(loss_may_take_factors(Kernels::fused, {}, {.label_smoothing = 0.1}));
  EXPECT_TRUE(loss_may_take_factors(Kernels::fused, at::kBFloat16, {}));
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
