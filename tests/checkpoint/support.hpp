#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/writer.hpp"
#include "core/slice.hpp"

namespace dtrain::checkpoint {

/// A folder that lasts as long as the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "dtrain-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A small model's state, as a trainer would hand it over.
struct SmallState {
  std::vector<float> weight = {1.0F, -2.5F, 3.25F, 4.0F, 5.0F, 6.5F};  // [2, 3]
  std::vector<double> bias = {0.1, 0.2};
  std::vector<float> average = {9.0F, 8.0F, 7.0F, 6.0F, 5.0F, 4.0F};
  std::int64_t batches = 42;  // a scalar, as num_batches_tracked is
  CheckpointInfo info{
      .step = 500,
      .epoch = 2,
      .position_samples = 32000,
      .model = "mlp",
      .dataset = "mnist",
      .seed = 7,
      .micro_batches = 8,
      .config = "model = \"mlp\"\n",
      .dtrain_version = "0.1.0",
      .vocabulary = {},
      .transformations =
          Transformations{.mean = {0.1307},
                          .std_dev = {1.0 / 3.0},
                          .columns = {{.name = "age", .filled_with = 40.5, .shift = 40.5, .scale = 2.0},
                                      {.name = "age", .marks_gaps = true}},
                          .targets = {{.shift = 1e6, .scale = 0.1}, {}}},
      .identity = {.samples = {{"test", 7}, {"train", 54000}}, .sha256 = "abc"}};

  std::vector<TensorRef> tensors() const {
    return {
        {.slice = Slice::whole("fc.weight", {2, 3}), .data = weight.data()},
        {.slice = Slice::whole("fc.bias", {2}), .dtype = "float64", .data = bias.data()},
        {.slice = Slice::whole("bn.num_batches_tracked", {}), .dtype = "int64", .data = &batches},
        {.slice = Slice::whole("empty", {0, 4}), .data = nullptr},
        {.slice = Slice::whole("fc.weight", {2, 3}), .group = "optimizer/exp_avg", .data = average.data()},
    };
  }
};

}  // namespace dtrain::checkpoint
