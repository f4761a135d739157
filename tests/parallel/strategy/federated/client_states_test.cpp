#include "parallel/strategy/federated/client_states.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

namespace fs = std::filesystem;

class ClientStatesTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  double loaded(int client, std::int64_t round) const {
    auto values = at::full({3}, -1, at::kFloat);
    states().load(client, round, values);
    EXPECT_TRUE(values.eq(values[0]).all().item<bool>());
    return values[0].item<double>();
  }
  void store(int client, std::int64_t round, double value, const std::vector<std::int64_t>& kept = {}) const {
    states().store(client, round, at::full({3}, value, at::kFloat), kept);
  }
  std::ptrdiff_t files(int client) const {
    const auto all = fs::directory_iterator(folder_ / ("0000" + std::to_string(client)));
    return std::distance(begin(all), end(all));
  }

  fs::path folder_ = fs::temp_directory_path() / ("dtrain-client-states-" + std::to_string(::getpid()));
  ClientStates states() const { return ClientStates(folder_); }
};

TEST_F(ClientStatesTest, AClientHasTheStateOfItsNewestRoundBefore) {
  EXPECT_EQ(loaded(1, 5), 0);
  store(1, 2, 20);
  store(1, 5, 50);
  store(2, 3, 33);
  EXPECT_EQ(loaded(1, 2), 0);
  EXPECT_EQ(loaded(1, 3), 20);
  EXPECT_EQ(loaded(1, 5), 20);
  EXPECT_EQ(loaded(1, 6), 50);
  EXPECT_EQ(loaded(2, 100), 33);
  store(1, 5, 55);  // the round was repeated
  EXPECT_EQ(loaded(1, 6), 55);
}

TEST_F(ClientStatesTest, KeepsWhatARunNeedsThatGoesOnFromACheckpoint) {
  for (const std::int64_t round : {1, 4, 6, 9}) store(1, round, static_cast<double>(round));
  EXPECT_EQ(files(1), 4);
  store(1, 12, 12, {7});  // from round 8 on the state of round 6 is read
  EXPECT_EQ(files(1), 3);
  EXPECT_EQ(loaded(1, 8), 6);
  for (const std::int64_t round : {13, 14, 15, 17}) store(1, round, static_cast<double>(round), {7, 14, 16});
  EXPECT_EQ(loaded(1, 8), 6) << "the best of all, perhaps";
  EXPECT_EQ(loaded(1, 15), 14);
  EXPECT_EQ(loaded(1, 17), 15);
  EXPECT_EQ(loaded(1, 18), 17);
  EXPECT_EQ(files(1), 4);
}

TEST_F(ClientStatesTest, ForgetsWhatIsDoneAgain) {
  for (const std::int64_t round : {1, 4, 6}) store(1, round, static_cast<double>(round));
  store(2, 5, 5);
  states().forget_from(5);
  EXPECT_EQ(loaded(1, 9), 4);
  EXPECT_EQ(loaded(2, 9), 0);
}

TEST_F(ClientStatesTest, RefusesAStateThatIsNotWhole) {
  store(1, 2, 20);
  for (const char* text : {"short", "twelve bytes and more"}) {
    std::ofstream(folder_ / "00001" / "round-00000002") << text;
    try {
      loaded(1, 3);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
    }
  }
  std::ofstream(folder_ / "00001" / "partial-9") << "a killed rank left this";
  store(1, 2, 21);
  EXPECT_EQ(loaded(1, 3), 21);
}

}  // namespace
}  // namespace dtrain::parallel
