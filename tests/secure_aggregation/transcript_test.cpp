// What a server could work out that keeps every message it gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "secure_aggregation/masks.hpp"
#include "secure_aggregation/round.hpp"
#include "secure_aggregation/session.hpp"
#include "secure_aggregation/shamir.hpp"

namespace dtrain::secure_aggregation {
namespace {

constexpr std::size_t kLength = 4095;

/// Chi-square of the frequencies of the 256 bytes, in standard deviations from what uniform ones have.
double unevenness(View bytes) {
  std::array<double, 256> counts = {};
  for (const auto byte : bytes) ++counts[static_cast<std::size_t>(byte)];
  const double expected = static_cast<double>(bytes.size()) / 256;
  double square = 0;
  for (const double count : counts) square += (count - expected) * (count - expected) / expected;
  return (square - 255) / std::sqrt(2.0 * 255);
}

/// All of it from the messages alone, none from the clients or the server of the test.
class ServersView {
 public:
  explicit ServersView(const Round& round) : settings_(round.settings()) {
    Roster roster;
    for (const auto& sent : round.transcript()) {
      if (sent.phase == Phase::keys) roster.keys.push_back(decode<Keys>(settings_, sent.bytes));
      if (sent.phase == Phase::shares) sharers_.push_back(sent.client);
      if (sent.phase == Phase::masked_inputs)
        masked_[sent.client] = decode<MaskedInput>(settings_, sent.bytes).words;
    }
    session_.emplace(settings_, roster);
    for (const auto& sent : round.transcript()) {
      if (sent.phase != Phase::unmasking) continue;
      for (const auto& share : decode<Reveal>(settings_, sent.bytes).shares) {
        shares_[{share.owner, share.of_self_seed}].push_back(
            {.place = session_->place(share.owner, sent.client), .bytes = share.bytes});
      }
    }
  }

  const Session& session() const { return *session_; }
  const std::map<int, Bytes>& masked() const { return masked_; }
  std::vector<Share> shares(int owner, bool of_self_seed) const {
    const auto found = shares_.find({owner, of_self_seed});
    return found == shares_.end() ? std::vector<Share>() : found->second;
  }

  /// A client's masked input without every mask whose seed has come back.
  Bytes without_known_masks(int client) const {
    auto words = masked_.at(client);
    const int bits = settings_.format.ring_bits;
    add_mask(words, join_secret(shares(client, true)), bits, Sign::minus);
    for (const int other : in_both(session_->graph().neighbours(client), sharers_)) {
      const auto of_key = shares(other, false);
      if (of_key.empty()) continue;
      add_mask(words, mask_seed(settings_, *session_, join_secret(of_key), other, client), bits,
               mask_sign(other, client));
    }
    return words;
  }

 private:
  Settings settings_;
  std::optional<Session> session_;
  std::vector<int> sharers_;
  std::map<int, Bytes> masked_;
  std::map<std::pair<int, bool>, std::vector<Share>> shares_;
};

std::size_t equal_elements(const FixedPoint& format, View words, const std::vector<std::int64_t>& values) {
  std::size_t equal = 0;
  for (std::size_t i = 0; i < values.size(); ++i) equal += element(format, words, i) == values[i] ? 1 : 0;
  return equal;
}

Settings settings_of(int survivors) {
  return {.round = 9, .length = kLength, .minimum_survivors = survivors};
}

TEST(TranscriptTest, MaskedInputsAreUniformThoughTheValuesAreNot) {
  Round round(settings_of(5), 8, 1);
  for (int client = 0; client < 8; ++client)
    std::fill(round.values(client).begin(), round.values(client).end(), 0.0F);
  round.run();
  const ServersView view(round);
  EXPECT_GT(unevenness(encode(round.settings().format, round.values(0), 1, "plain").words), 1000);
  for (const auto& [client, words] : view.masked()) {
    EXPECT_LT(std::abs(unevenness(words)), 5) << client;
    for (const auto& [other, words_of_other] : view.masked()) {
      if (other == client) continue;
      auto difference = words;
      add_words(difference, words_of_other, 32, Sign::minus);
      EXPECT_LT(std::abs(unevenness(difference)), 5) << client << ' ' << other;
    }
  }
}

TEST(TranscriptTest, NoVectorAndNoSumOfFewerFollowsFromAllMessages) {
  for (const int clients : {9, 34}) {
    const int survivors = clients == 9 ? 5 : 26;
    Round round(settings_of(survivors), clients, 2);
    round.run({{Phase::masked_inputs, {1, 4}}, {Phase::unmasking, {2}}});
    const auto& format = round.settings().format;
    const ServersView view(round);
    const auto left = round.server().sum().clients;

    std::map<int, Bytes> known;
    for (const int client : left) known[client] = view.without_known_masks(client);
    const auto sum_of = [&](const std::vector<int>& some) {
      Bytes sum(known.begin()->second.size());
      for (const int client : some) add_words(sum, known.at(client), format.ring_bits);
      return sum;
    };
    // All of them together give the sum: the attack takes off all that it can.
    EXPECT_EQ(equal_elements(format, sum_of(left), round.plain_sum(left)), kLength + 1);

    std::mt19937 draws(5);
    for (int trial = 0; trial < 60; ++trial) {
      auto some = left;
      std::shuffle(some.begin(), some.end(), draws);
      // Each client alone, all but one, and others between.
      const auto size = trial < static_cast<int>(left.size()) ? 1
                        : trial % 2 == 0                      ? left.size() - 1
                                                              : 1 + draws() % (left.size() - 1);
      if (size == 1) some[0] = left[static_cast<std::size_t>(trial) % left.size()];
      some.resize(size);
      const auto sum = sum_of(some);
      EXPECT_LT(std::abs(unevenness(sum)), 5) << size;
      EXPECT_LE(equal_elements(format, sum, round.plain_sum(some)), 2U) << size;
    }
  }
}

TEST(TranscriptTest, OnlyOneSecretOfEachClientComesBack) {
  Round round(settings_of(5), 9, 2);
  round.run({{Phase::masked_inputs, {1, 4}}});
  const ServersView view(round);
  for (int client = 0; client < 9; ++client) {
    const bool lost = client == 1 || client == 4;
    EXPECT_EQ(view.shares(client, true).empty(), lost);
    EXPECT_EQ(view.shares(client, false).empty(), !lost);
    // With a share less than the threshold, not even that one.
    auto shares = view.shares(client, !lost);
    ASSERT_EQ(view.session().plan().share_threshold, 5);
    ASSERT_GE(shares.size(), 5U);
    shares.resize(4);
    const auto guess = join_secret(shares);
    EXPECT_NE(sha256(guess.bytes()), view.session().keys(client).self_seed);
    EXPECT_NE(x25519_public(guess), view.session().keys(client).mask_key);
  }
}

TEST(TranscriptTest, OtherValuesWithTheSameSumGiveATranscriptThatFitsAsWell) {
  // The same secrets, and values moved from one client to another. The server's view differs only in these
  // two masked inputs, by what was moved; a different mask of the two, which only they know, makes them the
  // same again.
  auto settings = settings_of(5);
  settings.format.weight_bits = 0;
  Round one(settings, 8, 4);
  Round other(settings, 8, 4);
  for (auto* round : {&one, &other}) {
    for (const int client : {2, 5}) {
      std::fill(round->values(client).begin(), round->values(client).end(),
                round == &one ? 0.0F
                : client == 2 ? 1.0F
                              : -1.0F);
    }
  }
  one.run({{Phase::masked_inputs, {7}}});
  other.run({{Phase::masked_inputs, {7}}});
  EXPECT_EQ(one.server().sum().values, other.server().sum().values);
  ASSERT_EQ(one.transcript().size(), other.transcript().size());
  const ServersView view(one);
  const ServersView view_of_other(other);
  ASSERT_TRUE(contains(view.session().graph().neighbours(2), 5));
  for (std::size_t i = 0; i < one.transcript().size(); ++i) {
    const auto& sent = one.transcript()[i];
    const bool moved = sent.phase == Phase::masked_inputs && (sent.client == 2 || sent.client == 5);
    EXPECT_EQ(sent.bytes == other.transcript()[i].bytes, !moved);
  }
  Bytes moved = view_of_other.masked().at(2);
  add_words(moved, view.masked().at(2), 32, Sign::minus);
  Bytes taken = view.masked().at(5);
  add_words(taken, view_of_other.masked().at(5), 32, Sign::minus);
  EXPECT_EQ(moved, taken);
  for (const int client : {2, 5}) {
    EXPECT_LT(std::abs(unevenness(view.without_known_masks(client))), 5);
    EXPECT_LT(std::abs(unevenness(view_of_other.without_known_masks(client))), 5);
  }
}

}  // namespace
}  // namespace dtrain::secure_aggregation
