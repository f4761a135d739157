#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "secure_aggregation/round.hpp"

namespace dtrain::secure_aggregation {
namespace {

Settings settings_of(std::uint64_t round, std::size_t length, int survivors) {
  return {.round = round, .length = length, .minimum_survivors = survivors};
}

void expect_plain_sum(Round& round, const std::string& what) {
  const auto& sum = round.server().sum();
  auto expected = round.plain_sum(sum.clients);
  EXPECT_EQ(sum.weight, expected.back()) << what;
  expected.pop_back();
  EXPECT_EQ(sum.values, expected) << what;
}

/// Runs `work` and demands an Error with exactly this text.
template <class Work>
void expect_error(const std::string& sentence, ExitCode code, Work work) {
  try {
    work();
    ADD_FAILURE() << "nothing was refused: " << sentence;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), sentence);
    EXPECT_EQ(error.code(), code);
  }
}

TEST(RoundTest, TheSumIsThatWithoutMasksWhicheverClientsAreLost) {
  // Sizes with all as neighbours and with some; up to as many losses as are allowed, spread over the phases.
  std::mt19937 draws(11);
  for (int trial = 0; trial < 30; ++trial) {
    const int clients = 3 + static_cast<int>(draws() % 38);
    const int least = clients / 2 + 1;
    const int survivors = least + static_cast<int>(draws() % static_cast<unsigned>(clients - least + 1));
    auto settings = settings_of(static_cast<std::uint64_t>(trial), 1 + draws() % 67, survivors);
    settings.format.ring_bits = trial % 2 == 0 ? 32 : 64;
    settings.format.weight_bits = static_cast<int>(draws() % 9);
    Round round(settings, clients, trial);
    std::vector<int> order(static_cast<std::size_t>(clients));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), draws);
    order.resize(draws() % static_cast<unsigned>(clients - survivors + 1));
    std::map<Phase, std::set<int>> lost;
    for (const int client : order) lost[kPhases[draws() % 5]].insert(client);
    round.run(lost);
    const auto what =
        fmt::format("trial {}: {} clients, {} needed, {} lost", trial, clients, survivors, order.size());
    const auto gone =
        lost[Phase::keys].size() + lost[Phase::shares].size() + lost[Phase::masked_inputs].size();
    EXPECT_EQ(round.server().sum().clients.size(), static_cast<std::size_t>(clients) - gone) << what;
    expect_plain_sum(round, what);
  }
}

TEST(RoundTest, AsManyLossesAsAllowedInEachPhase) {
  for (const int clients : {3, 10, 36}) {
    const int survivors = clients == 36 ? 27 : clients / 2 + 1;
    for (const auto phase : kPhases) {
      Round round(settings_of(5, 33, survivors), clients, 100 + clients);
      std::set<int> lost;
      for (int client = 0; client < clients - survivors; ++client) lost.insert(client * 7 % clients);
      round.run({{phase, lost}});
      expect_plain_sum(round, fmt::format("{} clients, {}", clients, name_of(phase)));
    }
  }
}

TEST(RoundTest, OneLossMoreEndsTheRoundWithASentence) {
  for (const auto phase : kPhases) {
    Round round(settings_of(7, 5, 6), 10, 1);
    const auto sentence = fmt::format(
        "round 7, {}: 5 of 10 clients have answered, and a sum needs 6; repeat the round, and wait longer "
        "for its clients",
        name_of(phase));
    expect_error(sentence, ExitCode::failure, [&] { round.run({{phase, {0, 2, 3, 5, 8}}}); });
    EXPECT_THROW(round.server().sum(), Error);
  }
}

TEST(RoundTest, SettingsThatCannotWorkAreRefused) {
  const auto refused = [](int clients, Settings settings, const std::string& sentence) {
    settings.identities.resize(static_cast<std::size_t>(clients));
    expect_error(sentence, ExitCode::usage, [&] { Server server(settings); });
  };
  refused(10, settings_of(1, 5, 11),
          "secure aggregation: a threshold of 11 survivors is above the 10 clients of a round; ask for at "
          "most as many "
          "survivors as there are clients");
  refused(10, settings_of(1, 5, 5),
          "secure aggregation: a threshold of 5 survivors is not more than half of 10 clients: a server "
          "could get two "
          "different sums; ask for at least 6 survivors");
  refused(2, settings_of(1, 5, 2),
          "secure aggregation: a round of 2 clients hides nothing: each could subtract its own values; use "
          "at least 3 "
          "clients");
  refused(5, settings_of(1, 0, 3),
          "secure aggregation: a client has no values; give each client at least one value");
  auto narrow = settings_of(1, 5, 70);
  narrow.format = {.ring_bits = 32, .value_bits = 16, .weight_bits = 10};
  refused(100, narrow,
          "secure aggregation: a sum of 100 clients would overflow the ring of 32 bits: values take 16 bits, "
          "weights 10, "
          "the number of clients 7; use a ring of 64 bits, or fewer bits of a value");
  auto noisy = settings_of(1, 5, 3);
  noisy.noise_deviation = 10;
  refused(5, noisy,
          "secure aggregation: noise hides values but not the sum of the weights; use equal weights (0 bits) "
          "together "
          "with noise");
  noisy.noise_deviation = -1;
  refused(5, noisy,
          "secure aggregation: the deviation of a client's noise is not in [0, 2^20] integers; give values "
          "fewer bits, "
          "or use less noise");
}

TEST(RoundTest, AClientNeedsItsOwnKeyAndTheRoundsLength) {
  Round round(settings_of(3, 4, 2), 3, 9);
  privacy::Keystream random(key_of(1, 1, 1));
  expect_error(
      "secure aggregation: a client's private key is not that of its identity in the settings; give each "
      "client its own "
      "key, and all clients the same list of public keys",
      ExitCode::usage, [&] { Client(round.settings(), 0, Secret(key_of(9, 1, 1)), random); });
  round.run_phase();
  round.run_phase();
  round.values(1).resize(3);
  expect_error(
      "round 3, masked inputs: a client's update has another number of values than the round; give all "
      "clients the same "
      "model",
      ExitCode::usage, [&] { round.run_phase(); });
}

TEST(RoundTest, AnUpdateWithNanIsRefusedAndNothingOfItIsSent) {
  Round round(settings_of(3, 4, 2), 3, 9);
  round.values(1)[2] = std::nanf("");
  round.run_phase();
  round.run_phase();
  expect_error("round 3, masked inputs: a value is not a number; leave this client out of the round",
               ExitCode::usage, [&] { round.run_phase(); });
  EXPECT_EQ(round.transcript().back().client, 0);
}

TEST(RoundTest, AClientSaysHowManyValuesWereBeyondTheLargest) {
  Round round(settings_of(3, 4, 2), 3, 9);
  round.values(0) = {2, -2, 0, 1};
  round.run();
  EXPECT_EQ(round.client(0).saturated(), 2U);
  expect_plain_sum(round, "saturated values");
}

TEST(RoundTest, AShareThatDoesNotAuthenticateIsRefusedWithoutAWordOfAClient) {
  for (const std::size_t place : {0U, 40U, 79U}) {
    Round round(settings_of(12, 4, 4), 6, 2);
    round.to_client = [&](Phase phase, int client, Bytes& bytes) {
      if (phase != Phase::masked_inputs || client != 3) return;
      auto delivery = decode<ShareDelivery>(round.settings(), bytes);
      delivery.shares[2].sealed[place] ^= std::byte{4};
      bytes = encode(round.settings(), delivery);
    };
    expect_error(
        "round 12, masked inputs: a share does not authenticate; check the server and the connection; this "
        "client takes "
        "no part in the round",
        ExitCode::failure, [&] { round.run(); });
  }
}

TEST(RoundTest, SharesOfAnotherReceiverOrTwoSendersSwappedDoNotAuthenticate) {
  Round round(settings_of(12, 4, 4), 6, 2);
  round.to_client = [&](Phase phase, int client, Bytes& bytes) {
    if (phase != Phase::masked_inputs || client != 3) return;
    auto delivery = decode<ShareDelivery>(round.settings(), bytes);
    std::swap(delivery.shares[0].sealed, delivery.shares[1].sealed);
    bytes = encode(round.settings(), delivery);
  };
  expect_error(
      "round 12, masked inputs: a share does not authenticate; check the server and the connection; this "
      "client takes no "
      "part in the round",
      ExitCode::failure, [&] { round.run(); });
}

TEST(RoundTest, AKeyThatTheServerPutsInIsRefused) {
  Round round(settings_of(12, 4, 4), 6, 2);
  round.to_client = [&](Phase phase, int, Bytes& bytes) {
    if (phase != Phase::shares) return;
    auto roster = decode<Roster>(round.settings(), bytes);
    roster.keys[4].mask_key = x25519_public(Secret(key_of(1, 2, 3)));
    bytes = encode(round.settings(), roster);
  };
  expect_error(
      "round 12, shares: a key is not signed by its client for this round and these settings; compare the "
      "settings and "
      "identities of all clients",
      ExitCode::failure, [&] { round.run(); });
}

TEST(RoundTest, AServerThatTellsTwoSetsOfSurvivorsIsCaught) {
  // To half of the clients it hides the last client, to learn that one's mask key from them and its self
  // mask's seed from the others.
  for (const bool signatures_too : {false, true}) {
    Round round(settings_of(4, 8, 5), 8, 3);
    std::map<int, ClientSignature> signed_by;
    round.to_client = [&](Phase phase, int client, Bytes& bytes) {
      if (phase == Phase::survivors && client < 4) {
        auto survivors = decode<Survivors>(round.settings(), bytes);
        survivors.inputs.pop_back();
        bytes = encode(round.settings(), survivors);
      }
      if (phase == Phase::unmasking) {
        SignatureList list;
        for (const auto& [signer, signature] : signed_by) {
          if (signatures_too ? signer != 7 : (signer < 4) == (client < 4))
            list.signatures.push_back(signature);
        }
        bytes = encode(round.settings(), list);
      }
    };
    for (int phase = 0; phase < 3; ++phase) round.run_phase();
    // The server here is a liar: it does not check what it gets.
    for (int client = 0; client < 8; ++client) {
      auto message = round.server().message_for(client);
      round.to_client(Phase::survivors, client, message);
      signed_by[client] =
          decode<ClientSignature>(round.settings(), round.answer(Phase::survivors, client, message));
    }
    for (int client = 0; client < 8; ++client) {
      Bytes message;
      round.to_client(Phase::unmasking, client, message);
      expect_error(
          signatures_too
              ? "round 4, unmasking: a signature is not for the survivors that this client was told of; "
                "check "
                "the server and the connection; this client takes no part in the round"
              : "round 4, unmasking: 4 of 8 clients have signed the survivors, and a sum needs 5; repeat the "
                "round with clients that answer",
          ExitCode::failure, [&] { round.answer(Phase::unmasking, client, message); });
      // No second try.
      expect_error("round 4, unmasking: an earlier phase has failed; repeat the round", ExitCode::failure,
                   [&] { round.answer(Phase::unmasking, client, message); });
    }
  }
}

TEST(RoundTest, AServerThatTellsAClientOfFewerSharersIsCaught) {
  // Its input then has fewer masks than the others believe. The server asks them to unmask it, as a survivor.
  Round round(settings_of(4, 8, 5), 8, 3);
  const auto& settings = round.settings();
  round.run_phase();
  round.run_phase();
  Survivors survivors;
  for (int client = 0; client < 8; ++client) {
    auto delivery = decode<ShareDelivery>(settings, round.server().message_for(client));
    if (client == 3) {
      delivery.sharers.pop_back();
      delivery.shares.pop_back();
    }
    const auto reply = round.answer(Phase::masked_inputs, client, encode(settings, delivery));
    survivors.inputs.push_back(
        {.client = client, .signature = decode<MaskedInput>(settings, reply).signature});
    if (client == 3) {
      EXPECT_THROW(round.server().take(client, reply), Error) << "an honest server finds it, too";
    }
  }
  for (int client = 0; client < 8; ++client) {
    const std::string problem =
        client == 3 ? "the server's list of survivors lacks this client or has one that shared no secrets"
                    : "a survivor was told of other sharing clients than this one";
    expect_error("round 4, survivors: " + problem +
                     "; check the server and the connection; this client takes no part in the round",
                 ExitCode::failure,
                 [&] { round.answer(Phase::survivors, client, encode(settings, survivors)); });
  }
}

TEST(RoundTest, AServerThatSplitsTheSurvivorsAroundItsOwnClientsIsRefused) {
  // It says that the clients in two stretches of the ring are lost but for some: if those are on its side it
  // knows all masks between the two parts.
  auto settings = settings_of(9, 3, 240);
  settings.format.ring_bits = 64;
  Round round(settings, 300, 13);
  round.run_phase();
  const Session session(round.settings(), decode<Roster>(round.settings(), round.server().message_for(0)));
  while (round.server().phase() != Phase::survivors) round.run_phase();
  const auto all = decode<Survivors>(round.settings(), round.server().message_for(0)).inputs;
  const auto& ring = session.graph().ring();
  const auto reach = session.plan().neighbours / 2;
  const int least = session.plan().least_cut;
  for (const int kept : {1, least - 1, least, 2 * reach}) {
    std::set<int> lost;
    for (int i = 0; i < 2 * reach - kept; ++i) {
      lost.insert(ring[static_cast<std::size_t>(i < reach ? i : 150 + i - reach)]);
    }
    Survivors survivors;
    std::vector<int> left;
    for (const auto& input : all) {
      if (lost.contains(input.client)) continue;
      survivors.inputs.push_back(input);
      left.push_back(input.client);
    }
    EXPECT_EQ(session.graph().cut(left), kept);
    const auto message = encode(round.settings(), survivors);
    const int asked = ring[static_cast<std::size_t>(250 + kept % 40)];  // a client answers once
    if (kept >= least) {
      EXPECT_NO_THROW(round.answer(Phase::survivors, asked, message)) << kept;
    } else {
      expect_error(
          "round 9, survivors: the clients that are left hang together by too few common masks: sums of "
          "parts could show; repeat the round with clients that answer",
          ExitCode::failure, [&] { round.answer(Phase::survivors, asked, message); });
    }
  }
}

TEST(RoundTest, AClientAnswersEachPhaseOnce) {
  Round round(settings_of(4, 8, 5), 8, 3);
  round.run();
  // A second request for the other secret of each client.
  const auto message = encode(round.settings(), SignatureList{});
  expect_error(
      "round 4, unmasking: a message comes a second time or too early; send each message once, in the order "
      "of the "
      "phases",
      ExitCode::failure, [&] { round.answer(Phase::unmasking, 2, message); });
  Round early(settings_of(4, 8, 5), 8, 3);
  EXPECT_THROW(early.answer(Phase::masked_inputs, 0, message), Error);
}

TEST(RoundTest, EachClientRevealsOneSecretOfEachOther) {
  Round round(settings_of(4, 8, 5), 8, 3);
  round.run({{Phase::masked_inputs, {1, 6}}});
  for (const auto& sent : round.transcript()) {
    if (sent.phase != Phase::unmasking) continue;
    const auto reveal = decode<Reveal>(round.settings(), sent.bytes);
    EXPECT_EQ(reveal.shares.size(), 8U);
    for (const auto& share : reveal.shares)
      EXPECT_EQ(share.of_self_seed, share.owner != 1 && share.owner != 6);
  }
}

TEST(RoundTest, TooFewSurvivorsAreRefusedByTheClientsThemselves) {
  Round round(settings_of(4, 8, 5), 8, 3);
  round.to_client = [&](Phase phase, int, Bytes& bytes) {
    if (phase != Phase::survivors) return;
    auto survivors = decode<Survivors>(round.settings(), bytes);
    survivors.inputs.resize(4);
    bytes = encode(round.settings(), survivors);
  };
  expect_error(
      "round 4, survivors: 4 of 8 clients are left, and a sum needs 5; repeat the round with clients that "
      "answer",
      ExitCode::failure, [&] { round.run(); });
}

TEST(RoundTest, AWrongShareIsFoundBeforeTheSumIsWrong) {
  for (const int owner : {2, 6}) {  // the one lost, the other left
    Round round(settings_of(4, 8, 5), 8, 3);
    round.to_server = [&](Phase phase, int client, Bytes& bytes) {
      if (phase != Phase::unmasking || client != 0) return;
      auto reveal = decode<Reveal>(round.settings(), bytes);
      reveal.shares[static_cast<std::size_t>(owner)].bytes[5] ^= std::byte{1};
      bytes = encode(round.settings(), reveal);
    };
    expect_error(
        "round 4, unmasking: shares do not give the secret that they were made from; repeat the round "
        "without the client "
        "whose shares are wrong",
        ExitCode::failure, [&] {
          round.run({{Phase::masked_inputs, {2}}});
        });
  }
}

TEST(RoundTest, AMessageThatIsNoneLeavesTheServerAsItWas) {
  Round round(settings_of(4, 8, 5), 8, 3);
  std::mt19937 draws(1);
  round.to_server = [&](Phase phase, int client, Bytes& bytes) {
    if (phase == Phase::masked_inputs) return;  // its words may be anything
    for (int trial = 0; trial < 8; ++trial) {
      auto wrong = bytes;
      if (trial < 2) {
        wrong.resize(draws() % bytes.size());
      } else if (trial < 4) {
        wrong.insert(wrong.end(), 1 + draws() % 5, std::byte{0});
      } else {
        wrong[draws() % 10] ^= std::byte{2};  // version, kind or round
      }
      EXPECT_THROW(round.server().take(client, wrong), Error);
    }
    EXPECT_THROW(round.server().take((client + 1) % 8, bytes), Error) << "in another's name";
  };
  round.run();
  expect_plain_sum(round, "after messages that were none");
}

TEST(RoundTest, AMessageTwiceOrTooLateIsRefused) {
  Round round(settings_of(4, 8, 5), 8, 3);
  round.run({{Phase::masked_inputs, {2}}});
  const auto& last = round.transcript().back();
  expect_error(
      "round 4, the end: a message comes a second time or too late; leave its sender out, or repeat the "
      "round",
      ExitCode::failure, [&] { round.server().take(last.client, last.bytes); });
}

TEST(RoundTest, NoiseHasTheDeviationOfTheSumAtTheFewestSurvivors) {
  auto settings = settings_of(4, 4000, 4);
  settings.format.weight_bits = 0;
  settings.noise_deviation = 50;
  for (const bool losses : {false, true}) {
    Round round(settings, 6, 3);
    if (losses) {
      round.run({{Phase::masked_inputs, {0, 5}}});
    } else {
      round.run();
    }
    const auto& sum = round.server().sum();
    const auto plain = round.plain_sum(sum.clients);
    EXPECT_EQ(sum.weight, plain.back());
    double squares = 0;
    for (std::size_t i = 0; i < sum.values.size(); ++i) {
      const auto noise = static_cast<double>(sum.values[i] - plain[i]);
      squares += noise * noise / static_cast<double>(sum.values.size());
    }
    const double expected = 50.0 * 50.0 * (losses ? 1 : 1.5);
    EXPECT_NEAR(squares, expected, 5 * expected * std::sqrt(2.0 / 4000));
  }
}

TEST(RoundTest, MeansAreWeighted) {
  auto settings = settings_of(4, 2, 2);
  settings.format.value_bits = 20;
  settings.format.weight_bits = 8;
  Round round(settings, 3, 3);
  round.values(0) = {1, 0};
  round.values(1) = {-1, 0.5F};
  round.values(2) = {0.25F, 0.5F};
  for (int client = 0; client < 3; ++client)
    round.weight(client) = 10 * (static_cast<std::uint64_t>(client) + 1);
  round.run();
  const auto means = round.server().sum().means(settings.format);
  EXPECT_NEAR(means[0], (10 - 20 + 7.5) / 60, 1e-5);
  EXPECT_NEAR(means[1], 25.0 / 60, 1e-5);
}

}  // namespace
}  // namespace dtrain::secure_aggregation
