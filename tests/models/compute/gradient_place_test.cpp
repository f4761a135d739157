#include "models/compute/gradient_place.hpp"

#include <optional>

#include "core/error.hpp"
#include "models/borrowed_parameter.hpp"
#include "models/support.hpp"

namespace dtrain::models {
namespace {

Parameter parameter_of(double value) {
  return {.name = "fc.weight", .value = at::full({2, 3}, value).set_requires_grad(true)};
}

TEST(GradientPlaceTest, WhatItOffersIsTakenOnce) {
  Parameter weight = parameter_of(1);
  GradientPlace place(weight);
  const at::Tensor memory = at::empty({2, 3});
  place.offer(memory);
  EXPECT_TRUE(weight.take_gradient_memory().is_same(memory));
  EXPECT_FALSE(weight.take_gradient_memory().is_same(memory)) << "two gradients would lie in it";
  place.offer(memory);
  place.withdraw();
  EXPECT_FALSE(weight.take_gradient_memory().is_same(memory));
}

TEST(GradientPlaceTest, MemoryLaidOutOtherwiseIsNotUsed) {
  Parameter weight{.name = "conv.weight", .value = at::zeros({2, 3, 4, 4}).contiguous(kChannelsLast)};
  GradientPlace place(weight);
  const at::Tensor memory = at::empty({2, 3, 4, 4});
  place.offer(memory);
  const at::Tensor used = weight.take_gradient_memory(kChannelsLast);
  EXPECT_FALSE(used.is_same(memory));
  EXPECT_TRUE(used.is_contiguous(kChannelsLast));
}

TEST(GradientPlaceTest, AParameterWithoutOneHasNeitherMemoryNorRows) {
  Parameter weight = parameter_of(1);
  EXPECT_EQ(weight.take_gradient_memory().sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(weight.step_memory(), nullptr);
}

TEST(GradientPlaceTest, KeepsAStepsMemoryUntilTheStepEnds) {
  Parameter weight = parameter_of(1);
  GradientPlace place(weight);
  EXPECT_EQ(weight.step_memory(), nullptr);
  place.begin_step(2);
  ASSERT_NE(weight.step_memory(), nullptr);
  weight.step_memory()->transformed = at::zeros({1});
  place.begin_step(2);
  EXPECT_FALSE(weight.step_memory()->transformed.defined()) << "of the step before";
  place.end_step();
  EXPECT_EQ(weight.step_memory(), nullptr);
}

TEST(GradientPlaceTest, IsTheOnlyOneWhileItExists) {
  Parameter weight = parameter_of(1);
  {
    const GradientPlace first(weight);
    try {
      const GradientPlace second(weight);
      ADD_FAILURE() << "two collectors would each get a part of the gradients";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("fc.weight"), std::string::npos) << error.what();
    }
    EXPECT_EQ(weight.place, &first);
  }
  EXPECT_EQ(weight.place, nullptr);
  const GradientPlace next(weight);
  EXPECT_EQ(weight.place, &next);
}

TEST(GradientPlaceTest, RowsAreRefusedWhereTheLayerGivesNone) {
  Parameter weight = parameter_of(1);
  RowGradients rows;
  EXPECT_THROW(GradientPlace(weight, rows), Error);
  EXPECT_EQ(weight.place, nullptr);
  weight.by_rows = true;
  const GradientPlace place(weight, rows);
  EXPECT_EQ(weight.place->rows(), &rows);
}

TEST(BorrowedParameterTest, ItsGradientIsAddedToTheOwnersUnlessItIsKeptApart) {
  Parameter weight = parameter_of(2);
  BorrowedParameter use(weight);
  const auto pass = [&] {
    weight.value.mutable_grad().reset();
    (weight.value * 3 + use.value() * 5).sum().backward();
    return weight.value.grad()[0][0].item<double>();
  };
  EXPECT_EQ(pass(), 8);
  at::Tensor& leaf = use.keep_apart();
  EXPECT_EQ(pass(), 3);
  EXPECT_EQ(leaf.grad()[0][0].item<double>(), 5);
  {
    const at::NoGradGuard no_grad;
    weight.value.fill_(7);
  }
  EXPECT_EQ(use.value()[0][0].item<double>(), 7) << "the values are the owner's";
  use.join();
  EXPECT_EQ(pass(), 8);
}

TEST(BorrowedParameterTest, TwoBorrowersOfAParameterAreKeptApartEach) {
  Parameter weight = parameter_of(2);
  BorrowedParameter first(weight);
  BorrowedParameter second(weight);
  const at::Tensor of_first = first.keep_apart();
  const at::Tensor of_second = second.keep_apart();
  (weight.value * 2 + first.value() * 3 + second.value() * 5).sum().backward();
  EXPECT_EQ(weight.value.grad()[0][0].item<double>(), 2);
  EXPECT_EQ(of_first.grad()[0][0].item<double>(), 3);
  EXPECT_EQ(of_second.grad()[0][0].item<double>(), 5);
}

}  // namespace
}  // namespace dtrain::models
