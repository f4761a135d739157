#include "federated/partition.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace dtrain::federated {
namespace {

/// Samples whose classes go round, and whose sites are unequal.
struct Samples {
  explicit Samples(std::int64_t n, int k = 10) : count(n), classes(k) {
    for (std::int64_t i = 0; i < n; ++i) {
      of_class.push_back(i % k);
      of_site.push_back(static_cast<std::int32_t>(i % 10 < 6 ? 0 : i % 10 < 9 ? 1 : 2));
    }
  }
  SampleFacts facts() const {
    return {.samples = count, .classes_of = of_class, .classes = classes, .sites_of = of_site, .sites = 3};
  }
  std::int64_t count;
  int classes;
  std::vector<std::int64_t> of_class;
  std::vector<std::int32_t> of_site;
};

Partition parted(const std::string& rule, int clients, const Samples& samples, std::uint64_t seed = 1) {
  return Partition::make(PartitionRule::parse(rule), clients, samples.facts(), seed);
}

std::vector<int> classes_had(const Partition& partition, const Samples& samples) {
  std::vector<int> had;
  const auto histogram = partition.histogram(samples.of_class, samples.classes);
  for (int client = 0; client < partition.clients(); ++client) {
    const auto row = histogram.begin() + static_cast<std::ptrdiff_t>(client) * samples.classes;
    had.push_back(static_cast<int>(
        std::count_if(row, row + samples.classes, [](std::int64_t count) { return count > 0; })));
  }
  return had;
}

std::string refusal(const std::string& rule, int clients, const SampleFacts& facts) {
  try {
    Partition::make(PartitionRule::parse(rule), clients, facts, 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "nothing";
}

TEST(PartitionTest, EachSampleHasOneClientAndEachClientASampleWhateverTheRule) {
  std::mt19937 draw(11);
  for (int run = 0; run < 60; ++run) {
    const Samples samples(200 + static_cast<int>(draw() % 900), 2 + static_cast<int>(draw() % 11));
    const int clients = samples.classes + static_cast<int>(draw() % 12);
    const int each = 1 + static_cast<int>(draw() % static_cast<unsigned>(samples.classes));
    const std::vector<std::string> rules = {std::string("iid"), std::string("dirichlet=0.5"),
                                            std::string("quantity=2"), "classes=" + std::to_string(each),
                                            std::string("sites")};
    for (const std::string& rule : rules) {
      SCOPED_TRACE(rule + ", run " + std::to_string(run));
      const auto partition = parted(rule, rule == "sites" ? 3 : clients, samples, draw());
      std::vector<std::int64_t> all;
      for (int client = 0; client < partition.clients(); ++client) {
        EXPECT_GT(partition.samples(client), 0);
        EXPECT_TRUE(std::ranges::is_sorted(partition.ids(client)));
        all.insert(all.end(), partition.ids(client).begin(), partition.ids(client).end());
      }
      std::ranges::sort(all);
      std::vector<std::int64_t> expected(static_cast<std::size_t>(samples.count));
      std::iota(expected.begin(), expected.end(), std::int64_t{0});
      EXPECT_EQ(all, expected);
      const auto histogram = partition.histogram(samples.of_class, samples.classes);
      EXPECT_EQ(std::accumulate(histogram.begin(), histogram.end(), std::int64_t{0}), samples.count);
      const auto owners = partition.owners();
      for (const auto id : partition.ids(0)) EXPECT_EQ(owners[static_cast<std::size_t>(id)], 0);
    }
  }
}

TEST(PartitionTest, IsAFunctionOfTheSeedAllOfIt) {
  constexpr std::uint64_t kHigh = std::uint64_t{1} << 32;
  const Samples samples(500);
  for (const std::string rule : {"iid", "dirichlet=0.3", "quantity=1", "classes=2"}) {
    EXPECT_EQ(parted(rule, 10, samples, 3).owners(), parted(rule, 10, samples, 3).owners()) << rule;
    EXPECT_NE(parted(rule, 10, samples, 3).owners(), parted(rule, 10, samples, 4).owners()) << rule;
    EXPECT_NE(parted(rule, 10, samples, 3).owners(), parted(rule, 10, samples, 3 + kHigh).owners())
        << rule << ", another high half of the seed";
    EXPECT_NE(parted(rule, 10, samples, 3 + kHigh).owners(), parted(rule, 10, samples, 4 + kHigh).owners())
        << rule << ", another low half of the seed";
  }
}

TEST(PartitionTest, IidClientsHaveEquallyManySamples) {
  const Samples samples(1003);
  const auto partition = parted("iid", 10, samples);
  for (int client = 0; client < 10; ++client)
    EXPECT_NEAR(static_cast<double>(partition.samples(client)), 100.3, 1);
}

TEST(PartitionTest, ClientsHaveAsManyClassesAsTheyAreToHave) {
  const Samples samples(6000);
  for (const int each : {1, 2, 3, 10}) {
    const auto partition = parted("classes=" + std::to_string(each), 100, samples);
    for (const int had : classes_had(partition, samples)) EXPECT_EQ(had, each);
    // 100 clients with K classes: each class has 10 K owners, and 600 samples.
    for (int client = 0; client < 100; ++client)
      EXPECT_NEAR(static_cast<double>(partition.samples(client)), 60, each);
  }
}

TEST(PartitionTest, ASmallConcentrationMakesClientsDiffer) {
  const Samples samples(10000);
  const auto spread = [&](const std::string& rule) {
    const auto histogram = parted(rule, 10, samples).histogram(samples.of_class, samples.classes);
    double squares = 0;
    for (const auto count : histogram) squares += static_cast<double>(count * count);
    return squares / 100 / 1e4;  // 1: each client has 100 of each class
  };
  EXPECT_NEAR(spread("dirichlet=1000"), 1, 0.05);
  EXPECT_GT(spread("dirichlet=1"), 1.3);
  EXPECT_GT(spread("dirichlet=0.1"), spread("dirichlet=1"));
  const auto sizes = [&](const std::string& rule) {
    const auto partition = parted(rule, 10, samples);
    std::int64_t most = 0;
    for (int client = 0; client < 10; ++client) most = std::max(most, partition.samples(client));
    return most;
  };
  EXPECT_LT(sizes("quantity=1000"), 1200);
  EXPECT_GT(sizes("quantity=0.5"), 2000);
}

TEST(PartitionTest, ASiteIsAClient) {
  const Samples samples(1000);
  const auto partition = parted("sites", 3, samples);
  EXPECT_EQ(partition.samples(0), 600);
  EXPECT_EQ(partition.samples(1), 300);
  EXPECT_EQ(partition.samples(2), 100);
}

TEST(PartitionTest, PooledOneClientHasAll) {
  const Samples samples(40);
  const auto partition = parted("pooled", 1, samples);
  EXPECT_EQ(partition.clients(), 1);
  EXPECT_EQ(partition.samples(0), 40);
  EXPECT_NE(refusal("pooled", 2, samples.facts()).find("all samples lie with one client"), std::string::npos);
}

TEST(PartitionTest, RefusesWhatLeavesAClientWithoutData) {
  const Samples samples(40);
  EXPECT_NE(refusal("iid", 41, samples.facts()).find("use at most 40"), std::string::npos);
  EXPECT_NE(refusal("iid", 0, samples.facts()).find("0 clients"), std::string::npos);
  EXPECT_NE(refusal("dirichlet=0.001", 40, samples.facts()).find("would be without data; use a larger A"),
            std::string::npos);
  auto facts = samples.facts();
  facts.sites = 4;  // the last one has no training sample
  EXPECT_NE(refusal("sites", 4, facts).find("1 of 4 owners have no training samples: number 3"),
            std::string::npos);
  const std::vector<std::string> names = {"Basel", "Bern", "Genf", "Zug"};
  facts.site_names = names;
  const auto said = refusal("sites", 4, facts);
  EXPECT_NE(said.find("no training samples: Zug; stage the dataset without"), std::string::npos) << said;
  EXPECT_EQ(said.find("fewer clients"), std::string::npos) << said;
}

TEST(PartitionTest, RefusesARuleThatTheDatasetDoesNotAllow) {
  const Samples samples(40);
  const SampleFacts plain{.samples = 40};
  EXPECT_NE(refusal("dirichlet=1", 4, plain).find("no classes"), std::string::npos);
  EXPECT_NE(refusal("classes=2", 4, plain).find("no classes"), std::string::npos);
  EXPECT_NE(refusal("sites", 4, plain).find("--site COLUMN"), std::string::npos);
  EXPECT_NE(refusal("sites", 5, samples.facts()).find("3 sites"), std::string::npos);
  EXPECT_NE(refusal("classes=11", 4, samples.facts()).find("use at most 10"), std::string::npos);
  EXPECT_NE(refusal("classes=2", 4, samples.facts()).find("leave classes out"), std::string::npos);
  for (const char* rule : {"", "IID", "dirichlet", "dirichlet=0", "dirichlet=nan", "dirichlet=-1",
                           "quantity=inf", "classes=0", "classes=two", "sites=4"}) {
    EXPECT_THROW(PartitionRule::parse(rule), Error) << rule;
  }
}

}  // namespace
}  // namespace dtrain::federated
