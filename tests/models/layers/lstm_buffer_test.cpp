// cuDNN reads the buffer by itself; here a computation by its documented formulas does, from the buffer
// alone.
#include "models/layers/lstm_buffer.hpp"

#include <utility>

#include "models/support.hpp"

namespace dtrain::models {
namespace {

constexpr std::int64_t kInputs = 5;
constexpr std::int64_t kHidden = 3;

LstmWeights drawn_weights(std::int64_t inputs = kInputs, std::int64_t hidden = kHidden) {
  return {at::randn({4 * hidden, inputs}, at::kDouble), at::randn({4 * hidden, hidden}, at::kDouble),
          at::randn({4 * hidden}, at::kDouble), at::randn({4 * hidden}, at::kDouble)};
}

/// The same values as parts of `flat`, in the given order with `gap` elements between them.
LstmWeights laid_out(const LstmWeights& weights, const std::vector<int>& order, std::int64_t gap) {
  LstmWeights moved = weights;
  const std::array<at::Tensor*, 4> parts = {&moved.input, &moved.hidden, &moved.input_bias,
                                            &moved.hidden_bias};
  at::Tensor flat = at::zeros({1000}, at::kDouble);
  std::int64_t next = 7;
  for (const int i : order) {
    at::Tensor& part = *parts[static_cast<std::size_t>(i)];
    at::Tensor slot = flat.narrow(0, next, part.numel()).view(part.sizes());
    slot.copy_(part);
    next += part.numel() + gap;
    part = slot.set_requires_grad(true);
  }
  return moved;
}

/// One step as cuDNN's documentation of CUDNN_LSTM has it: linear layers 0 to 3 take the input, 4 to 7 the
/// hidden state; each region of the buffer is one such matrix [hidden, width] or bias [hidden], the matrices
/// first.
std::pair<at::Tensor, at::Tensor> cudnn_step(const at::Tensor& buffer, const at::Tensor& input,
                                             const at::Tensor& hidden, const at::Tensor& cell) {
  const auto inputs = input.size(1);
  const auto width = hidden.size(1);
  const auto matrix = [&](std::int64_t layer) {
    const auto columns = layer < 4 ? inputs : width;
    const auto before = layer < 4 ? layer * width * inputs : 4 * width * inputs + (layer - 4) * width * width;
    return buffer.narrow(0, before, width * columns).view({width, columns});
  };
  const auto bias = [&](std::int64_t layer) {
    return buffer.narrow(0, 4 * width * (inputs + width) + layer * width, width);
  };
  const auto linear = [&](std::int64_t gate) {
    return at::mm(input, matrix(gate).t()) + at::mm(hidden, matrix(gate + 4).t()) + bias(gate) +
           bias(gate + 4);
  };
  const at::Tensor next = at::sigmoid(linear(1)) * cell +
                          at::sigmoid(linear(0)) * at::tanh(linear(2));  // 1: forget, 2: new memory
  return {at::sigmoid(linear(3)) * at::tanh(next), next};
}

TEST(LstmBufferTest, HoldsTheWeightsInCudnnsOrder) {
  at::manual_seed(1);
  const LstmWeights weights = drawn_weights();
  const at::Tensor buffer = lstm_buffer(weights);
  const std::vector<std::int64_t> sizes = {3, 2, 2, 1};  // ragged: sequences of 4, 3 and 1 steps
  const at::Tensor inputs = at::randn({8, kInputs}, at::kDouble);
  const LstmState start = {at::randn({3, kHidden}, at::kDouble), at::randn({3, kHidden}, at::kDouble)};
  const LstmResult result = lstm(inputs, sizes, start, weights);
  at::Tensor hidden = start.hidden;
  at::Tensor cell = start.cell;
  std::int64_t offset = 0;
  for (const std::int64_t running : sizes) {
    std::tie(hidden, cell) = cudnn_step(buffer, inputs.narrow(0, offset, running),
                                        hidden.narrow(0, 0, running), cell.narrow(0, 0, running));
    EXPECT_TRUE(at::allclose(result.outputs.narrow(0, offset, running), hidden, 1e-12, 1e-12));
    offset += running;
  }
}

TEST(LstmBufferTest, IsAViewWhereTheWeightsLieSoAlready) {
  const LstmWeights weights = laid_out(drawn_weights(), {0, 1, 2, 3}, 0);
  const at::Tensor buffer = lstm_buffer(weights);
  EXPECT_EQ(buffer.data_ptr(), weights.input.data_ptr());
  EXPECT_TRUE(buffer.equal(lstm_buffer(drawn_weights()).fill_(0).add_(buffer)));  // as many elements
  EXPECT_FALSE(buffer.requires_grad());
}

TEST(LstmBufferTest, IsACopyInTheSameOrderElsewhere) {
  at::manual_seed(2);
  const LstmWeights drawn = drawn_weights();
  const at::Tensor wanted = at::cat({drawn.input.flatten(), drawn.hidden.flatten(),
                                     drawn.input_bias.flatten(), drawn.hidden_bias.flatten()});
  for (const auto& [order, gap] :
       {std::pair{std::vector{3, 2, 1, 0}, 0}, {std::vector{0, 1, 2, 3}, 4}, {std::vector{1, 0, 2, 3}, 0}}) {
    const LstmWeights weights = laid_out(drawn, order, gap);
    const at::Tensor buffer = lstm_buffer(weights);
    EXPECT_TRUE(buffer.equal(wanted));
    EXPECT_FALSE(buffer.is_alias_of(weights.input));
  }
  EXPECT_TRUE(lstm_buffer(drawn).equal(wanted));  // four tensors, each with memory of its own
}

}  // namespace
}  // namespace dtrain::models
