#include "parallel/tensor/common_parameters.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "models/slicing/slices.hpp"
#include "parallel/job_of_test.hpp"
#include "parallel/small_model.hpp"
#include "parallel/tensor/tensor_ranks.hpp"

namespace dtrain::parallel {
namespace {

std::unique_ptr<models::Model> sliced_model(TensorRanks& slices) {
  auto model = small_model("7,5");  // neither divides among two ranks
  model->slice(slices);
  return model;
}

/// Every value on a rank is 1 + its number.
class CommonParametersTest : public testing::Test {
 protected:
  CommonParametersTest() { parameters_.values().fill_(own()); }
  double own() { return 1.0 + job_.rank(); }
  /// Whether what all ranks hold is `common` here, and each slice the rank's own.
  void expect(double common) {
    for (const auto& entry : parameters_.entries()) {
      const bool is_common = models::group_slice(entry.parameter->slice) == nullptr;
      const auto value = FlatParameters::view(parameters_.values(), entry);
      EXPECT_TRUE((value == (is_common ? common : own())).all().item<bool>()) << entry.parameter->name;
    }
  }

  JobOfTest job_;
  TensorRanks slices_{job_.data()};
  std::unique_ptr<models::Model> model_ = sliced_model(slices_);
  FlatParameters parameters_{*model_, at::kDouble};
};

TEST_F(CommonParametersTest, FollowTheFirstRank) {
  CommonParameters common(parameters_, nullptr, job_.data());
  common.agree(parameters_.values(), {0, parameters_.size()}, true);
  expect(1);
  EXPECT_NO_THROW(common.require_same(parameters_.values(), job_.world(), 3));
}

TEST_F(CommonParametersTest, AreWrittenByOneOfTheRanksThatShareMemory) {
  CommonParameters common(parameters_, nullptr, job_.data());
  common.agree(parameters_.values(), {0, parameters_.size()}, false);
  expect(own());
}

TEST_F(CommonParametersTest, FollowPartByPart) {
  const CommonParameters common(parameters_, nullptr, job_.data());
  for (const auto& entry : parameters_.entries()) {
    const Range part{entry.offset, FlatParameters::end_of(entry)};
    common.agree(parameters_.values().narrow(0, part.begin, part.size()), part, true);
  }
  expect(1);
}

TEST_F(CommonParametersTest, ThatDifferEndTheRun) {
  if (job_.data().size() == 1) GTEST_SKIP() << "one rank has the only copy";
  const CommonParameters common(parameters_, nullptr, job_.data());
  EXPECT_THROW(common.require_same(parameters_.values(), job_.world(), 3), Error);
}

}  // namespace
}  // namespace dtrain::parallel
