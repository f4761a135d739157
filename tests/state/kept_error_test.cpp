// What nodes have not sent of their gradients, saved and loaded on as many nodes or others.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <deque>
#include <set>
#include <vector>

#include "checkpoint/reader.hpp"
#include "checkpoint/support.hpp"
#include "checkpoint/writer.hpp"
#include "core/error.hpp"
#include "h5/library.hpp"
#include "parallel/gradients/compression/kept_error.hpp"
#include "parallel/small_model.hpp"
#include "state/initial_weights.hpp"
#include "state/saved_state.hpp"
#include "state/threads_group.hpp"
#include "topology/mesh.hpp"

namespace dtrain::state {
namespace {

constexpr const char* kGroup = "test_error";

parallel::StateTensor error_of(const at::Tensor& value, int node, int nodes) {
  return parallel::kept_error(kGroup, "w", value, {.node = node, .nodes = nodes});
}

/// A checkpoint in which the nodes have these errors [3, 4].
std::filesystem::path saved(const checkpoint::TemporaryFolder& folder, const std::vector<at::Tensor>& errors,
                            h5::Library& library) {
  const auto nodes = static_cast<int>(errors.size());
  ThreadsJob job(nodes);
  std::deque<ThreadsGroup> groups;
  std::deque<SavedState> states;
  std::vector<checkpoint::TensorRef> references;
  for (int node = 0; node < nodes; ++node) {
    groups.emplace_back(job, std::vector<int>{node}, 0);
    states.emplace_back(topology::MeshShape{.data = nodes}, topology::MeshCoordinates{.data = node},
                        groups.back());
    states.back().take({error_of(errors[static_cast<std::size_t>(node)], node, nodes)}, {.step = 7});
    for (const auto& reference : states.back().references()) references.push_back(reference);
  }
  return checkpoint::save(folder.path(), checkpoint::SmallState().info, references, library);
}

std::set<std::string> loaded(const std::filesystem::path& folder, const parallel::StateTensor& tensor,
                             h5::Library& library) {
  auto model = parallel::small_model();
  parallel::FlatParameters parameters(*model, at::kFloat);
  const auto optimizer =
      optim::make_optimizer({.name = "sgd"}, parameters.size(), parameters.values().options());
  return load_optimizer(checkpoint::load(folder, library, checkpoint::Verify::manifest),
                        parallel::StateView(parameters, *model, *optimizer, {}, {tensor}));
}

TEST(KeptErrorTest, EachNodeGetsItsOwnOrItsShareOfTheSum) {
  h5::Library library;
  const checkpoint::TemporaryFolder folder;
  std::vector<at::Tensor> errors;
  for (const double first : {0.25, -3.0})
    errors.push_back(at::arange(12, at::kFloat).reshape({3, 4}) + first);
  const auto checkpoint = saved(folder, errors, library);
  for (const int nodes : {1, 2, 3, 5}) {
    at::Tensor sum = at::zeros({3, 4});
    for (int node = 0; node < nodes; ++node) {
      auto value = at::zeros({4, 3}).t();  // in memory otherwise than in the file
      EXPECT_TRUE(loaded(checkpoint, error_of(value, node, nodes), library).empty());
      if (nodes == 2) {
        EXPECT_TRUE(at::equal(value, errors[static_cast<std::size_t>(node)]));
      }
      sum += value;
    }
    EXPECT_TRUE(at::allclose(sum, errors[0] + errors[1])) << nodes << " nodes";
  }
}

TEST(KeptErrorTest, WhatACheckpointLacksStaysAndIsSaid) {
  h5::Library library;
  const checkpoint::TemporaryFolder folder;
  const auto checkpoint = checkpoint::save(folder.path(), checkpoint::SmallState().info,
                                           checkpoint::SmallState().tensors(), library);
  auto value = at::full({3, 4}, 5.0F);
  const auto anew = loaded(checkpoint, error_of(value, 0, 2), library);
  ASSERT_EQ(anew.size(), 1U);
  EXPECT_NE(anew.begin()->find("starts anew"), std::string::npos);
  EXPECT_TRUE(at::equal(value, at::full({3, 4}, 5.0F)));
}

TEST(KeptErrorTest, WhatMayBeMissingIsReadWhereAllCopiesHaveOne) {
  h5::Library library;
  const checkpoint::TemporaryFolder folder;
  auto tensor = error_of(at::full({3, 4}, 7.0F), 0, 1);
  tensor.owner = {};
  ThreadsJob job(1);
  ThreadsGroup group(job, {0}, 0);
  SavedState state(topology::MeshShape{}, topology::MeshCoordinates{}, group);
  state.take({tensor}, {.step = 7});
  const auto checkpoint =
      checkpoint::save(folder.path(), checkpoint::SmallState().info, state.references(), library);
  tensor.value = at::zeros({3, 4});
  EXPECT_TRUE(loaded(checkpoint, tensor, library).empty());
  EXPECT_TRUE(at::equal(tensor.value, at::full({3, 4}, 7.0F)));
}

TEST(KeptErrorTest, StateThatMayNotBeMissingIsNamedWithTheOptionThatBeginsItAnew) {
  h5::Library library;
  const checkpoint::TemporaryFolder folder;
  const auto checkpoint = checkpoint::save(folder.path(), checkpoint::SmallState().info,
                                           checkpoint::SmallState().tensors(), library);
  auto tensor = error_of(at::zeros({3, 4}), 0, 2);
  tensor.anew.clear();
  try {
    loaded(checkpoint, tensor, library);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_NE(error.subject().find("optimizer/"), std::string::npos) << error.subject();
    EXPECT_NE(error.advice().find("--optimizer-state reset"), std::string::npos) << error.advice();
  }
}

}  // namespace
}  // namespace dtrain::state
