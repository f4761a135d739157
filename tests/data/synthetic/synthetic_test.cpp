#include "data/synthetic/synthetic.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "data/folder.hpp"
#include "data/sampler.hpp"

namespace dtrain::data {
namespace {

using testing::error_of;

struct Rows {
  HostArray inputs;
  HostArray targets;
};

Rows all_of(const Dataset& dataset, const std::string& split) {
  Rows rows;
  dataset.source(split)->gather(epoch_order(dataset.info().samples(split), Order::identity, 0, 0),
                                rows.inputs, rows.targets);
  return rows;
}

/// Share of `test` that the nearest mean of train's classes gets right.
template <typename T>
double nearest_mean_accuracy(const Rows& train, const Rows& test, std::size_t classes) {
  const std::size_t features = static_cast<std::size_t>(train.inputs.count() / train.inputs.shape()[0]);
  std::vector<std::vector<double>> means(classes, std::vector<double>(features, 0.0));
  std::vector<double> counts(classes, 0.0);
  const auto add = [&](const Rows& rows, auto&& visit) {
    for (std::int64_t i = 0; i < rows.inputs.shape()[0]; ++i)
      visit(rows.targets.as<std::int64_t>()[i],
            rows.inputs.as<T>().subspan(static_cast<std::size_t>(i) * features, features));
  };
  add(train, [&](std::int64_t name, auto values) {
    counts[name] += 1;
    for (std::size_t f = 0; f < features; ++f) means[name][f] += static_cast<double>(values[f]);
  });
  double right = 0;
  add(test, [&](std::int64_t name, auto values) {
    std::vector<double> distances;
    for (std::size_t c = 0; c < classes; ++c) {
      double distance = 0;
      for (std::size_t f = 0; f < features; ++f) {
        const double difference = static_cast<double>(values[f]) - means[c][f] / counts[c];
        distance += difference * difference;
      }
      distances.push_back(distance);
    }
    right += std::min_element(distances.begin(), distances.end()) - distances.begin() == name ? 1 : 0;
  });
  return right / static_cast<double>(test.inputs.shape()[0]);
}

TEST(SyntheticTest, TheSameSpecGivesTheSameBytesAndAnotherSeedOthers) {
  for (const std::string& task : synthetic_tasks()) {
    const SyntheticSpec spec{.task = task, .train_samples = 64, .validation_samples = 8, .test_samples = 8};
    SyntheticSpec other = spec;
    other.seed = 2;
    const Rows first = all_of(synthetic_dataset(spec), "train");
    const Rows again = all_of(synthetic_dataset(spec), "train");
    const Rows different = all_of(synthetic_dataset(other), "train");
    ASSERT_EQ(first.inputs.bytes(), again.inputs.bytes());
    EXPECT_EQ(std::memcmp(first.inputs.data(), again.inputs.data(), first.inputs.bytes()), 0) << task;
    const std::size_t common = std::min(first.inputs.bytes(), different.inputs.bytes());
    EXPECT_NE(std::memcmp(first.inputs.data(), different.inputs.data(), common), 0) << task;
  }
}

TEST(SyntheticTest, ASampleDoesNotDependOnHowManyThereAre) {
  const SyntheticSpec few{
      .shape = {3, 8, 8}, .train_samples = 10, .validation_samples = 0, .test_samples = 0};
  SyntheticSpec many = few;
  many.train_samples = 100;
  const Rows a = all_of(synthetic_dataset(few), "train");
  const Rows b = all_of(synthetic_dataset(many), "train");
  EXPECT_EQ(std::memcmp(a.inputs.data(), b.inputs.data(), a.inputs.bytes()), 0);
}

TEST(SyntheticTest, ImagesAndTablesAreLearnableAndSplitsAgree) {
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{1, 28, 28}, {3, 32, 32}}) {
    const Dataset images = synthetic_dataset({.shape = shape, .train_samples = 1000, .test_samples = 300});
    EXPECT_GT(nearest_mean_accuracy<std::uint8_t>(all_of(images, "train"), all_of(images, "test"), 10), 0.8);
  }
  const Dataset table =
      synthetic_dataset({.task = "table_classification", .train_samples = 1000, .test_samples = 300});
  EXPECT_GT(nearest_mean_accuracy<float>(all_of(table, "train"), all_of(table, "test"), 10), 0.8);
}

TEST(SyntheticTest, RegressionIsMostlyLinear) {
  const Dataset dataset = synthetic_dataset({.task = "regression", .shape = {8}, .train_samples = 2000});
  const Rows rows = all_of(dataset, "train");
  // Features are independent with variance 1, so each one's covariance with y is its best weight.
  std::vector<double> weights(8, 0.0);
  double variance = 0;
  const auto row = [&](std::int64_t i) {
    return rows.inputs.as<float>().subspan(static_cast<std::size_t>(i) * 8, 8);
  };
  for (std::int64_t i = 0; i < 2000; ++i)
    for (std::size_t f = 0; f < 8; ++f) weights[f] += double{row(i)[f]} * rows.targets.as<float>()[i] / 2000;
  double rest = 0;
  for (std::int64_t i = 0; i < 2000; ++i) {
    const double y = rows.targets.as<float>()[i];
    const double guess = std::inner_product(weights.begin(), weights.end(), row(i).begin(), 0.0);
    variance += y * y;
    rest += (y - guess) * (y - guess);
  }
  EXPECT_LT(rest, 0.5 * variance);
}

TEST(SyntheticTest, ATranslationIsItsSourceBackwardsUnderOneSubstitution) {
  const Dataset dataset = synthetic_dataset({.task = "translation", .train_samples = 20});
  for (std::int64_t i = 0; i < 20; ++i) {
    HostArray source;
    HostArray target;
    dataset.source("train")->gather(std::vector<std::int64_t>{i}, source, target);
    ASSERT_EQ(source.count(), target.count());
    const auto from = source.as<std::int32_t>();
    const auto to = target.as<std::int32_t>();
    EXPECT_EQ(from.front(), 2);
    EXPECT_EQ(to.back(), 3);
    for (std::size_t k = 1; k + 1 < from.size(); ++k)
      EXPECT_EQ((from[k] - 4 + 7) % 60, to[to.size() - 1 - k] - 4);
  }
}

TEST(SyntheticTest, LengthsAreThoseOfTheTokens) {
  for (const std::string& task : synthetic_tasks()) {
    const Dataset dataset = synthetic_dataset({.task = task, .train_samples = 64, .validation_samples = 8});
    const auto lengths = dataset.source("train")->lengths();
    if (task != "text_classification" && task != "translation") {
      EXPECT_TRUE(lengths.empty()) << task;
      continue;
    }
    const Rows rows = all_of(dataset, "train");
    std::vector<std::int64_t> counted(64, 0);
    const auto add = [&](const HostArray& array) {
      const auto tokens = array.as<std::int32_t>();
      const std::size_t width = tokens.size() / counted.size();
      for (std::size_t at = 0; at < tokens.size(); ++at) counted[at / width] += tokens[at] != 0 ? 1 : 0;
    };
    add(rows.inputs);
    if (task == "translation") add(rows.targets);
    EXPECT_EQ(lengths, counted) << task;
  }
}

TEST(SyntheticTest, ImpossibleSpecsAreUsageErrors) {
  const std::vector<SyntheticSpec> bad = {
      {.task = "poetry"}, {.shape = {28, 28}}, {.shape = {0, 28, 28}}, {.classes = 0}, {.train_samples = 0}};
  for (const SyntheticSpec& spec : bad)
    EXPECT_EQ(error_of([&] { synthetic_dataset(spec); }).code(), ExitCode::usage);
}

}  // namespace
}  // namespace dtrain::data
