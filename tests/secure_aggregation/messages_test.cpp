#include "secure_aggregation/messages.hpp"

#include <gtest/gtest.h>

#include <random>

#include "core/error.hpp"

namespace dtrain::secure_aggregation {
namespace {

Settings settings() {
  Settings made{.round = 77, .length = 6, .minimum_survivors = 3};
  made.identities.resize(5);
  return made;
}

template <class Message>
std::string refusal(const Bytes& bytes) {
  try {
    decode<Message>(settings(), bytes);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// Anything may arrive: an Error or a message, which then is what the bytes say.
template <class Message>
void expect_no_surprise(const Message& message) {
  const auto bytes = encode(settings(), message);
  EXPECT_EQ(encode(settings(), decode<Message>(settings(), bytes)), bytes);
  std::mt19937 draws(1);
  for (int trial = 0; trial < 3000; ++trial) {
    auto wrong = bytes;
    for (unsigned change = 0; change <= draws() % 3; ++change) {
      wrong[draws() % wrong.size()] = static_cast<std::byte>(draws() % 4 == 0 ? 255 : draws());
    }
    if (trial % 3 == 0) wrong.resize(draws() % (wrong.size() + 1));
    if (trial % 7 == 0) wrong.resize(wrong.size() + draws() % 100);
    try {
      EXPECT_EQ(encode(settings(), decode<Message>(settings(), wrong)).size(), wrong.size());
    } catch (const Error& error) {
      EXPECT_EQ(error.subject().rfind("round 77, ", 0), 0U);
    }
  }
}

TEST(MessagesTest, EachKindComesBackAndWrongBytesAreRefused) {
  expect_no_surprise(Keys{.client = 4});
  expect_no_surprise(Roster{{{.client = 1}, {.client = 4}}});
  expect_no_surprise(ShareBundle{.client = 1, .shares = {{.client = 0}, {.client = 3}}});
  expect_no_surprise(ShareDelivery{.sharers = {0, 1, 4}, .shares = {{.client = 0}}});
  expect_no_surprise(MaskedInput{.client = 1, .signature = {}, .words = Bytes(28)});
  expect_no_surprise(Survivors{{{.client = 0}, {.client = 2}, {.client = 3}}});
  expect_no_surprise(ClientSignature{.client = 3});
  expect_no_surprise(SignatureList{{{.client = 0}, {.client = 4}}});
  expect_no_surprise(Reveal{.client = 2, .shares = {{.owner = 0}, {.owner = 1, .of_self_seed = true}}});
}

TEST(MessagesTest, TheSentenceSaysWhatIsWrongWithIt) {
  const auto sentence = [](const char* phase, const char* what) {
    return std::string("round 77, ") + phase + ": a message " + what +
           "; leave its sender out, or repeat the round";
  };
  auto other_round = settings();
  other_round.round = 76;
  EXPECT_EQ(refusal<Survivors>(encode(other_round, Survivors{{{.client = 0}}})),
            sentence("survivors", "is of another round"));
  EXPECT_EQ(refusal<Survivors>(encode(settings(), SignatureList{})),
            sentence("survivors", "is of another kind"));
  EXPECT_EQ(refusal<Survivors>({}), sentence("survivors", "is of another version of the format"));
  EXPECT_EQ(refusal<Survivors>(encode(settings(), Survivors{{{.client = 5}}})),
            sentence("survivors", "names a client that is not there"));
  EXPECT_EQ(refusal<Survivors>(encode(settings(), Survivors{{{.client = 2}, {.client = 2}}})),
            sentence("survivors", "has a list of clients that does not ascend"));
  auto bytes = encode(settings(), Survivors{{{.client = 1}, {.client = 2}}});
  bytes.pop_back();
  EXPECT_EQ(refusal<Survivors>(bytes), sentence("survivors", "is cut short"));
  EXPECT_EQ(
      refusal<MaskedInput>(encode(settings(), MaskedInput{.client = 0, .signature = {}, .words = Bytes(24)})),
      sentence("masked inputs", "has another number of values than the round"));
  // Both secrets of one client.
  EXPECT_EQ(
      refusal<Reveal>(encode(
          settings(), Reveal{.client = 0, .shares = {{.owner = 1}, {.owner = 1, .of_self_seed = true}}})),
      sentence("unmasking", "has a list of clients that does not ascend"));
}

}  // namespace
}  // namespace dtrain::secure_aggregation
