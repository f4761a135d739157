#include "train/config/precision.hpp"

#include <gtest/gtest.h>

namespace dtrain::train {
namespace {

using models::Kernels;

Kernels kernels_with(const std::string& kernels, const std::string& device, const std::string& precision,
                     bool reproducible = false) {
  RunConfig config;
  config.kernels = kernels;
  config.device = device;
  config.precision = precision;
  config.reproducible = reproducible;
  return kernels_of(config);
}

TEST(KernelsTest, GpusJoinOperationsInHalfPrecisionUnlessToldOtherwise) {
  EXPECT_EQ(RunConfig().kernels, "auto");
  EXPECT_EQ(kernels_with("auto", "cuda", "bf16"), Kernels::fused);
  EXPECT_EQ(kernels_with("auto", "cuda", "fp16"), Kernels::fused);
  EXPECT_EQ(kernels_with("own", "cuda", "bf16"), Kernels::own);
  EXPECT_EQ(kernels_with("auto", "cuda", "fp32"), Kernels::own);
  EXPECT_EQ(kernels_with("auto", "cuda", "bf16", true), Kernels::own) << "--reproducible";
  EXPECT_EQ(kernels_with("auto", "cpu", "bf16"), Kernels::own);
  EXPECT_EQ(kernels_with("auto", "auto", "bf16"), Kernels::own)
      << "before it is settled where a run computes";
  EXPECT_EQ(kernels_with("fused", "cpu", "fp32"), Kernels::fused);
  EXPECT_EQ(kernels_with("libtorch", "cuda", "bf16"), Kernels::libtorch);
}

}  // namespace
}  // namespace dtrain::train
