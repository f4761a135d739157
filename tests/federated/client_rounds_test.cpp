#include "federated/client_rounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace dtrain::federated {
namespace {

ClientRounds rounds(const ClientRounds::Facts& facts, int clients = 20, std::int64_t samples = 500,
                    const std::string& rule = "quantity=1") {
  return ClientRounds(Partition::make(PartitionRule::parse(rule), clients, {.samples = samples}, 5), facts);
}

TEST(ClientRoundsTest, SamplesClientsAnewInEachRoundAndAllOfThemInTheEnd) {
  const auto all = rounds({.clients_per_round = 5});
  std::set<int> seen;
  std::set<std::vector<int>> choices;
  for (std::int64_t round = 1; round <= 40; ++round) {
    const auto clients = all.sampled(round);
    EXPECT_EQ(clients.size(), 5U);
    EXPECT_TRUE(std::ranges::is_sorted(clients));
    EXPECT_EQ(std::set<int>(clients.begin(), clients.end()).size(), 5U);
    EXPECT_EQ(clients, all.sampled(round));
    seen.insert(clients.begin(), clients.end());
    choices.insert(clients);
  }
  EXPECT_EQ(seen.size(), 20U);
  EXPECT_GT(choices.size(), 30U);
}

TEST(ClientRoundsTest, ClientsOfARoundAndTheirOrdersAreFunctionsOfTheWholeSeed) {
  const auto steps = [](std::uint64_t seed) {
    const auto all = rounds({.clients_per_round = 20, .local_batch = 9, .seed = seed});
    std::vector<std::vector<std::int64_t>> ids;
    for (const auto& batch : all.plan(1, 0, 1).micro_batches) ids.push_back(batch.ids);
    return ids;
  };
  const auto clients = [](std::uint64_t seed) {
    const auto all = rounds({.clients_per_round = 5, .seed = seed});
    std::vector<std::vector<int>> drawn;
    for (std::int64_t round = 1; round <= 5; ++round) drawn.push_back(all.sampled(round));
    return drawn;
  };
  const std::uint64_t high = std::uint64_t{1} << 32;
  EXPECT_NE(steps(4), steps(4 + high)) << "another high half";
  EXPECT_NE(steps(4 + high), steps(5 + high)) << "another low half";
  EXPECT_NE(clients(4), clients(4 + high));
  EXPECT_NE(clients(4 + high), clients(5 + high));
}

TEST(ClientRoundsTest, EachSampledClientHasOneRankAlsoWhereItDropsOut) {
  const auto all = rounds({.clients_per_round = 12, .local_batch = 9, .drop_rate = 0.4, .seed = 4});
  std::set<int> phases;
  for (const std::int64_t round : {1, 2, 3, 4, 5, 6}) {
    for (const int ranks : {1, 3}) {
      std::vector<int> clients;
      for (int rank = -1; rank < ranks; ++rank) {
        const auto plan = all.plan(round, rank, ranks);
        EXPECT_EQ(plan.round->asked, all.sampled(round));
        EXPECT_EQ(plan.round->most_samples, all.most_samples());
        if (rank < 0) {  // a server
          EXPECT_TRUE(plan.micro_batches.empty());
          EXPECT_TRUE(plan.round->clients.empty());
          EXPECT_TRUE(plan.round->dropouts.empty());
        }
        for (const auto& work : plan.round->clients) clients.push_back(work.client);
        for (const auto& dropout : plan.round->dropouts) {
          clients.push_back(dropout.client);
          phases.insert(dropout.answers);
        }
      }
      std::ranges::sort(clients);
      EXPECT_EQ(clients, all.sampled(round)) << round;
    }
  }
  EXPECT_EQ(phases, (std::set<int>{0, 1, 2}));
}

TEST(ClientRoundsTest, ClientsAndTheirLocalStepsAreTheSameOnAnyNumberOfRanks) {
  const auto all = rounds({.clients_per_round = 7, .local_epochs = 2, .local_batch = 9, .seed = 4});
  using Steps = std::map<std::uint32_t, std::vector<std::int64_t>>;
  Steps expected;
  for (const int ranks : {1, 2, 3, 5, 9}) {
    Steps steps;
    std::vector<int> clients;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto plan = all.plan(3, rank, ranks);
      ASSERT_NE(plan.round, nullptr);
      EXPECT_EQ(plan.round->sampled, 7);
      EXPECT_EQ(plan.round->dropped, 0);
      std::int64_t samples = 0;
      for (const int client : all.sampled(3)) samples += all.partition().samples(client);
      EXPECT_EQ(plan.round->samples, samples);
      std::size_t next = 0;
      for (const auto& work : plan.round->clients) {
        clients.push_back(work.client);
        EXPECT_EQ(work.first, next);
        EXPECT_EQ(work.samples, all.partition().samples(work.client));
        next += work.steps;
        std::map<std::int64_t, int> used;
        for (std::size_t k = work.first; k < next; ++k) {
          for (const auto id : plan.micro_batches.at(k).ids) ++used[id];
        }
        EXPECT_EQ(std::ssize(used), work.samples);
        for (const auto& [id, times] : used) EXPECT_EQ(times, 2);  // once in each local epoch
      }
      EXPECT_EQ(next, plan.micro_batches.size());
      for (const auto& batch : plan.micro_batches) {
        EXPECT_LE(batch.samples(), 9);
        EXPECT_TRUE(steps.emplace(batch.index, batch.ids).second);
      }
    }
    std::ranges::sort(clients);
    EXPECT_EQ(clients, all.sampled(3));
    if (ranks == 1) expected = steps;
    EXPECT_EQ(steps, expected) << ranks;
  }
}

TEST(ClientRoundsTest, DealsClientsByTheirSamples) {
  const auto all = rounds({.clients_per_round = 20}, 20, 2000, "quantity=3");
  std::vector<std::int64_t> samples;
  for (int rank = 0; rank < 4; ++rank) {
    samples.push_back(0);
    const auto plan = all.plan(1, rank, 4);
    for (const auto& work : plan.round->clients) samples.back() += work.samples;
  }
  std::int64_t largest = 0;
  for (int client = 0; client < 20; ++client) largest = std::max(largest, all.partition().samples(client));
  const auto [least, most] = std::ranges::minmax(samples);
  EXPECT_EQ(std::accumulate(samples.begin(), samples.end(), std::int64_t{0}), 2000);
  EXPECT_LE(most - least, largest);
}

TEST(ClientRoundsTest, ALocalStepHasAllSamplesWhereItIsToHave) {
  const auto all = rounds({.clients_per_round = 4, .local_epochs = 3});
  const auto plan = all.plan(1, 0, 1);
  EXPECT_EQ(plan.micro_batches.size(), 12U);
  for (const auto& work : plan.round->clients) {
    EXPECT_EQ(work.steps, 3U);
    EXPECT_EQ(plan.micro_batches.at(work.first).samples(), work.samples);
    EXPECT_EQ(all.local_steps(work.client), 3);
  }
}

TEST(ClientRoundsTest, ClientsDropOutWithTheirProbability) {
  const auto all = rounds({.clients_per_round = 20, .drop_rate = 0.3});
  double reported = 0;
  for (std::int64_t round = 1; round <= 200; ++round) {
    const auto clients = all.reporting(round);
    reported += static_cast<double>(clients.size());
    const auto plan = all.plan(round, 0, 1);
    EXPECT_EQ(plan.round->sampled, std::ssize(clients));
    EXPECT_EQ(plan.round->dropped, 20 - std::ssize(clients));
  }
  EXPECT_NEAR(reported / 4000, 0.7, 0.03);
}

TEST(ClientRoundsTest, RefusesFewerClientsThanAskedForInARound) {
  for (const int wanted : {0, 21}) {
    try {
      rounds({.clients_per_round = wanted});
      ADD_FAILURE() << wanted;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_NE(std::string(error.what()).find("use 1 to 20"), std::string::npos) << error.what();
    }
  }
}

/// Draws clients 1 and 4, or of the records of any client the first in each second local step.
class FixedDraws final : public parallel::PrivateTraining {
 public:
  enum class Of { clients, records };
  explicit FixedDraws(Of of) : of_(of) {}
  std::optional<std::vector<int>> drawn_clients(std::int64_t) const override {
    return of_ == Of::clients ? std::optional(std::vector<int>{1, 4}) : std::nullopt;
  }
  std::optional<std::vector<std::int64_t>> drawn_records(std::int64_t, std::uint32_t index,
                                                         int) const override {
    if (of_ == Of::clients) return std::nullopt;
    return index % 2 == 0 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{};
  }
  std::string ledger() const override { return {}; }
  std::int64_t take_ledger(const std::string&, const std::string&) override { return 0; }
  std::int64_t releases() const override { return 0; }
  bool is_spent() override { return false; }
  double epsilon() const override { return 0; }
  Terms terms() const override { return {}; }
  std::string in_words() const override { return {}; }

 private:
  Of of_;
};

TEST(ClientRoundsTest, TakesTheClientsThatAreDrawnInSecret) {
  const auto all = rounds({.clients_per_round = 7, .local_batch = 9, .seed = 4});
  const FixedDraws draws(FixedDraws::Of::clients);
  const auto plan = all.plan(3, 0, 1, &draws);
  EXPECT_EQ(plan.round->everyone, (std::vector<int>{1, 4}));
  EXPECT_EQ(plan.round->sampled, 2);
  EXPECT_EQ(plan.round->dropped, 0);
  ASSERT_EQ(plan.round->clients.size(), 2U);
  EXPECT_EQ(plan.round->clients[1].client, 4);
  // What layers draw in its steps follows from their indices, whichever others are there.
  const auto everyone = rounds({.clients_per_round = 20, .local_batch = 9, .seed = 4}).plan(3, 0, 1);
  const auto& same = everyone.round->clients.at(4);
  const auto& work = plan.round->clients[1];
  ASSERT_EQ(same.client, 4);
  for (std::size_t k = 0; k < work.steps; ++k) {
    EXPECT_EQ(plan.micro_batches.at(work.first + k).index, everyone.micro_batches.at(same.first + k).index);
    EXPECT_EQ(plan.micro_batches[work.first + k].ids, everyone.micro_batches[same.first + k].ids);
  }
}

TEST(ClientRoundsTest, WhatLayersDrawForAClientFollowsFromTheClientAlone) {
  const auto indices = [](const std::vector<std::size_t>& samples) {
    std::vector<std::int32_t> sites;
    for (std::size_t client = 0; client < samples.size(); ++client)
      sites.insert(sites.end(), samples[client], static_cast<std::int32_t>(client));
    const int clients = static_cast<int>(samples.size());
    const SampleFacts facts{
        .samples = std::ssize(sites), .classes_of = {}, .sites_of = sites, .sites = clients};
    const ClientRounds all(Partition::make(PartitionRule::parse("sites"), clients, facts, 1),
                           {.clients_per_round = clients, .local_batch = 2});
    const auto plan = all.plan(1, 0, 1);
    std::map<int, std::vector<std::uint32_t>> found;
    for (const auto& work : plan.round->clients) {
      for (std::size_t k = work.first; k < work.first + work.steps; ++k)
        found[work.client].push_back(plan.micro_batches[k].index);
    }
    return found;
  };
  const auto few = indices({2, 4, 6});
  const auto many = indices({200, 4, 6});
  EXPECT_EQ(few.at(0).front(), many.at(0).front());
  EXPECT_EQ(few.at(1), many.at(1)) << "another client has more samples";
  EXPECT_EQ(few.at(2), many.at(2));
}

TEST(ClientRoundsTest, TakesTheRecordsThatAreDrawnInSecretPerhapsNone) {
  const auto all = rounds({.clients_per_round = 7, .local_epochs = 2, .local_batch = 9, .seed = 4});
  const FixedDraws draws(FixedDraws::Of::records);
  for (int rank = 0; rank < 2; ++rank) {
    const auto plan = all.plan(3, rank, 2, &draws);
    EXPECT_EQ(plan.round->everyone, all.reporting(3));
    for (const auto& work : plan.round->clients) {
      EXPECT_EQ(static_cast<std::int64_t>(work.steps), all.local_steps(work.client));
      const auto first = all.partition().ids(work.client).front();
      for (std::size_t k = 0; k < work.steps; ++k) {
        const auto& batch = plan.micro_batches.at(work.first + k);
        EXPECT_EQ(batch.ids,
                  batch.index % 2 == 0 ? std::vector<std::int64_t>{first} : std::vector<std::int64_t>());
      }
    }
  }
}

}  // namespace
}  // namespace dtrain::federated
