#include "checkpoint/manifest_check.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "core/error.hpp"

namespace dtrain::checkpoint {
namespace {

Manifest good() {
  Manifest manifest;
  manifest.info = {.step = 12, .epoch = 2, .position_samples = 40, .total_steps = 20, .best = {.step = 10}};
  manifest.info.model = "mlp";
  manifest.info.micro_batches = 2;
  manifest.info.so_far = {.weight = 40, .correct = 30, .counted = 40};
  manifest.info.identity.samples = {{"train", 100}};
  manifest.files = {{.file = "part-00000.h5", .bytes = 5000, .sha256 = std::string(64, 'a')}};
  manifest.tensors = {{.name = "model/fc.weight",
                       .dtype = "float32",
                       .shape = {4, 6},
                       .slices = {{.file = "part-00000.h5", .offset = {0, 0}, .shape = {4, 2}},
                                  {.file = "part-00000.h5", .offset = {0, 2}, .shape = {4, 4}}}}};
  return manifest;
}

std::string refused(const std::function<void(Manifest&)>& spoil) {
  Manifest manifest = good();
  spoil(manifest);
  try {
    check_sense(manifest, "there/manifest.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_EQ(error.subject(), "there/manifest.json");
    EXPECT_FALSE(error.advice().empty());
    return error.problem();
  }
  return "";
}

TEST(ManifestCheckTest, AGoodManifestPasses) {
  EXPECT_EQ(refused([](Manifest&) {}), "");
  EXPECT_EQ(refused([](Manifest& m) { m.info.total_steps = 0; }), "") << "not known";
}

TEST(ManifestCheckTest, UsersNameModelsAndTensorsAsTheyLike) {
  const auto named = [](const std::string& model, const std::string& tensor) {
    return refused([&](Manifest& m) {
      m.info.model = model;
      m.tensors[0].name = tensor;
      for (auto& slice : m.tensors[0].slices) slice.dataset = tensor;
    });
  };
  EXPECT_EQ(named("my net", "model/heads.my head.weight"), "");
  EXPECT_EQ(named("r\xc3\xa9seau", "model/heads.\t.weight"), "");
  EXPECT_EQ(named("mlp", "model/" + std::string(5000, 'a')), "");
  EXPECT_NE(named("mlp", "model/" + std::string(9000, 'a')), "");
  EXPECT_NE(named("mlp", std::string("model/a\0b", 9)), "");
  EXPECT_NE(named("", "model/fc.weight"), "");
  EXPECT_NE(named("../mlp", "model/fc.weight"), "");
}

TEST(ManifestCheckTest, WhatCouldNotBeReadIsNotWritten) {
  Manifest manifest = good();
  manifest.tensors[0].name.assign(9000, 'a');
  const std::filesystem::path nowhere = "there";  // nothing is written before the check
  EXPECT_THROW(write_manifest(nowhere, manifest), Error);
  EXPECT_FALSE(std::filesystem::exists(nowhere));
}

TEST(ManifestCheckTest, PlacesThatContradictEachOtherAreRefused) {
  EXPECT_NE(refused([](Manifest& m) { m.info.step = -1; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.info.epoch = 0; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.info.epoch = 13; }), "") << "more epochs than steps";
  EXPECT_NE(refused([](Manifest& m) { m.info.position_samples = -5; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.info.position_samples = 101; }), "") << "of 100 samples";
  EXPECT_NE(refused([](Manifest& m) { m.info.total_steps = 11; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.info.best.step = 13; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.info.so_far.correct = 41; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.info.so_far.weight = -1; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.info.so_far.virtual_time_s = -1; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.info.micro_batches = 0; }), "");
}

TEST(ManifestCheckTest, ColumnsAreScaledByNumbersThatCanBe) {
  const auto column = [](double filled_with, double shift, double scale) {
    return refused([&](Manifest& m) {
      m.info.transformations.emplace();
      m.info.transformations->columns = {
          {.name = "width", .filled_with = filled_with, .shift = shift, .scale = scale}};
    });
  };
  EXPECT_EQ(column(3.5, -2, 0.01), "");
  EXPECT_NE(column(3.5, -2, 0), "");
  EXPECT_NE(column(3.5, -2, -1), "");
  EXPECT_NE(column(3.5, -2, 1e-320), "") << "its inverse is infinite";
  EXPECT_NE(column(1e308, -2, 1), "");
  EXPECT_NE(column(3.5, std::nan(""), 1), "");
  const auto target = [](double shift, double scale) {
    return refused(
        [&](Manifest& m) { m.info.transformations.emplace().targets = {{.shift = shift, .scale = scale}}; });
  };
  EXPECT_EQ(target(1e6, 0.01), "");
  EXPECT_NE(target(1e6, 0), "");
  EXPECT_NE(target(std::nan(""), 1), "");
  const auto images = [](double deviation) {
    return refused([&](Manifest& m) { m.info.transformations.emplace().std_dev = {0.3, deviation}; });
  };
  EXPECT_EQ(images(0.2), "");
  EXPECT_NE(images(0), "");
}

TEST(ManifestCheckTest, ShapesWhoseBytesWrapAreRefused) {
  const auto shape = [](std::vector<std::int64_t> extents) {
    return refused([&](Manifest& m) {
      m.tensors[0].shape = extents;
      m.tensors[0].slices = {
          {.file = "part-00000.h5", .offset = std::vector<std::int64_t>(extents.size()), .shape = extents}};
    });
  };
  EXPECT_EQ(shape({4, 6}), "");
  EXPECT_EQ(shape({}), "") << "a scalar";
  EXPECT_NE(shape({1LL << 32, 1LL << 32}), "");
  EXPECT_NE(shape({-2, -3}), "");
  EXPECT_EQ(shape({4, 0}), "") << "without elements";
  EXPECT_NE(shape({4, 400}), "") << "more than the files have";
}

TEST(ManifestCheckTest, TensorsAreNoLargerThanTheirFilesTogether) {
  const auto tensors = [](int count) {
    return refused([&](Manifest& m) {
      for (int i = 1; i < count; ++i) {
        m.tensors.push_back(m.tensors[0]);
        m.tensors.back().name = fmt::format("model/fc{}", i);
      }
    });
  };
  EXPECT_EQ(tensors(52), "") << "of 96 bytes each, in 5000";
  EXPECT_NE(tensors(53), "") << "some share their bytes";
}

TEST(ManifestCheckTest, TiedWeightsHaveNamesOfTheirOwnAndAreFew) {
  const auto tied = [](const std::string& name) {
    return refused([&](Manifest& m) { m.info.tied = {{name, "fc.weight"}}; });
  };
  EXPECT_EQ(tied("head.weight"), "");
  EXPECT_NE(tied("fc.weight"), "");
  EXPECT_NE(tied(""), "");
  EXPECT_NE(refused([](Manifest& m) {
              for (int i = 0; i < 100'001; ++i) m.info.tied[fmt::format("a{}", i)] = "fc.weight";
            }),
            "");
}

TEST(ManifestCheckTest, SlicesCoverEachElementOnce) {
  const auto slices = [](const std::function<void(std::vector<SliceEntry>&)>& spoil) {
    return refused([&](Manifest& m) { spoil(m.tensors[0].slices); });
  };
  using Slices = std::vector<SliceEntry>;
  EXPECT_NE(slices([](Slices& s) { s.pop_back(); }), "") << "a hole";
  EXPECT_NE(slices([](Slices& s) { s[1].offset = {0, 1}; }), "") << "as many elements, but some twice";
  EXPECT_NE(slices([](Slices& s) { s[0].offset = {-1, 0}; }), "");
  EXPECT_NE(slices([](Slices& s) { s[1].offset = {0, std::numeric_limits<std::int64_t>::max()}; }), "");
  EXPECT_NE(slices([](Slices& s) { s[0].offset = {0}; }), "");
  EXPECT_NE(slices([](Slices& s) { s[0].file = "part-00001.h5"; }), "") << "not listed";
  EXPECT_NE(slices([](Slices& s) { s.clear(); }), "");
  EXPECT_NE(slices([](Slices& s) { s[0].dataset = std::string("a\0b", 3); }), "");
}

TEST(ManifestCheckTest, FilesAndTensorsHaveOneNameEachAndAHash) {
  EXPECT_NE(refused([](Manifest& m) { m.files.push_back(m.files[0]); }), "");
  EXPECT_NE(refused([](Manifest& m) { m.tensors.push_back(m.tensors[0]); }), "");
  EXPECT_NE(refused([](Manifest& m) { m.files[0].sha256 = "abc"; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.files[0].bytes = -1; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.files[0].file = "part\x1b[2J"; }), "");
  EXPECT_NE(refused([](Manifest& m) { m.info.model = "../mlp"; }), "");
}

}  // namespace
}  // namespace dtrain::checkpoint
