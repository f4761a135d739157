#include "secure_aggregation/client.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "secure_aggregation/discrete_gaussian.hpp"
#include "secure_aggregation/masks.hpp"
#include "secure_aggregation/shamir.hpp"

namespace dtrain::secure_aggregation {
namespace {

constexpr const char* kRepeat = "repeat the round with clients that answer";
constexpr const char* kDistrust =
    "check the server and the connection; this client takes no part in the round";

bool equal_keys(const Keys& one, const Keys& other) {
  return one.mask_key == other.mask_key && one.share_key == other.share_key &&
         one.self_seed == other.self_seed;
}

}  // namespace

Client::Client(Settings settings, int client, const Secret& identity, privacy::Keystream& random)
    : settings_(std::move(settings)), client_(client), identity_(identity), random_(random) {
  settings_.validate();
  if (client < 0 || client >= settings_.clients() ||
      ed25519_public(identity) != settings_.identities[static_cast<std::size_t>(client)]) {
    throw usage_error("a client's private key is not that of its identity in the settings",
                      "secure aggregation",
                      "give each client its own key, and all clients the same list of public keys");
  }
}

/// Sets failed_ until the phase has its answer, so that an error on the way ends this client's part.
void Client::begin(Phase phase) {
  if (failed_) fail(settings_.round, phase, "an earlier phase has failed", "repeat the round");
  if (phase != next_) {
    fail(settings_.round, phase, "a message comes a second time or too early",
         "send each message once, in the order of the phases");
  }
  failed_ = true;
  next_ = static_cast<Phase>(static_cast<int>(phase) + 1);
}

Bytes Client::advertise_keys() {
  begin(Phase::keys);
  random_.fill(mask_key_.bytes());
  random_.fill(share_key_.bytes());
  random_.fill(self_seed_.bytes());
  keys_.client = client_;
  keys_.mask_key = x25519_public(mask_key_);
  keys_.share_key = x25519_public(share_key_);
  keys_.self_seed = sha256(self_seed_.bytes());
  keys_.signature = ed25519_sign(identity_, signed_keys(settings_.digest(), keys_));
  failed_ = false;
  return encode(settings_, keys_);
}

Bytes Client::share_keys(View roster) {
  begin(Phase::shares);
  session_.emplace(settings_, decode<Roster>(settings_, roster));
  if (!contains(session_->graph().clients(), client_) || !equal_keys(session_->keys(client_), keys_)) {
    fail(settings_.round, Phase::shares, "the server's list of keys lacks those of this client", kDistrust);
  }
  const auto holders = session_->graph().holders(client_);
  const int count = static_cast<int>(holders.size());
  const auto mask_shares = split_secret(mask_key_, session_->plan().share_threshold, count, random_);
  const auto self_shares = split_secret(self_seed_, session_->plan().share_threshold, count, random_);
  ShareBundle bundle{.client = client_};
  for (std::size_t i = 0; i < holders.size(); ++i) {
    if (holders[i] == client_) {
      held_[client_] = {mask_shares[i].bytes, self_shares[i].bytes};
      continue;
    }
    Bytes plain(mask_shares[i].bytes.begin(), mask_shares[i].bytes.end());
    plain.insert(plain.end(), self_shares[i].bytes.begin(), self_shares[i].bytes.end());
    // The key is of this round, this sender and this receiver, and seals this message only: the nonce may be
    // 0.
    const auto key = share_key(settings_, *session_, share_key_, client_, client_, holders[i]);
    const auto sealed = seal(key, Nonce{}, plain, session_->digest());
    auto& entry = bundle.shares.emplace_back();
    entry.client = holders[i];
    std::copy(sealed.begin(), sealed.end(), entry.sealed.begin());
  }
  failed_ = false;
  return encode(settings_, bundle);
}

/// Demands shares from each neighbour that shared, and from no other: a server that tells clients of
/// different sharers is found when they compare signatures.
void Client::open_shares(const ShareDelivery& delivery) {
  const auto refuse = [this](const std::string& problem, const char* advice) {
    fail(settings_.round, Phase::masked_inputs, problem, advice);
  };
  sharers_ = delivery.sharers;
  if (static_cast<int>(sharers_.size()) < settings_.minimum_survivors) {
    refuse(fmt::format("{} of {} clients have shared their secrets, and a sum needs {}", sharers_.size(),
                       settings_.clients(), settings_.minimum_survivors),
           kRepeat);
  }
  if (!contains(sharers_, client_) || in_both(sharers_, session_->graph().clients()) != sharers_) {
    refuse("the server's list of sharing clients lacks this one or has one without keys", kDistrust);
  }
  std::vector<int> from;
  for (const auto& share : delivery.shares) from.push_back(share.client);
  if (from != in_both(session_->graph().neighbours(client_), sharers_)) {
    refuse("the shares are not those of this client's neighbours", kDistrust);
  }
  if (static_cast<int>(from.size()) + 1 < session_->plan().share_threshold) {
    refuse("too few neighbours of a client have shared their secrets", kRepeat);
  }
  for (const auto& share : delivery.shares) {
    const auto key = share_key(settings_, *session_, share_key_, client_, share.client, client_);
    const auto plain = open(key, Nonce{}, share.sealed, session_->digest());
    if (!plain) refuse("a share does not authenticate", kDistrust);
    auto& held = held_[share.client];
    std::copy_n(plain->begin(), 32, held.of_mask_key.begin());
    std::copy_n(plain->begin() + 32, 32, held.of_self_seed.begin());
  }
}

Bytes Client::mask_input(View delivery, std::span<const float> values, std::uint64_t weight) {
  begin(Phase::masked_inputs);
  const std::string where = fmt::format("round {}, masked inputs", settings_.round);
  if (values.size() != settings_.length) {
    throw usage_error("a client's update has another number of values than the round", where,
                      "give all clients the same model");
  }
  auto encoded = encode(settings_.format, values, weight, where.c_str());
  saturated_ = encoded.saturated;
  if (settings_.noise_deviation > 0) {
    DiscreteGaussian noise(settings_.noise_variance_of_a_client(), random_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      set_element(settings_.format, encoded.words, i,
                  element(settings_.format, encoded.words, i) + noise.draw());
    }
  }
  open_shares(decode<ShareDelivery>(settings_, delivery));
  const int bits = settings_.format.ring_bits;
  add_mask(encoded.words, self_seed_, bits, Sign::plus);
  for (const auto& [other, shares] : held_) {
    if (other == client_) continue;
    add_mask(encoded.words, mask_seed(settings_, *session_, mask_key_, client_, other), bits,
             mask_sign(client_, other));
  }
  failed_ = false;
  const auto signature = ed25519_sign(identity_, signed_sharers(session_->digest(), sharers_));
  return encode(settings_,
                MaskedInput{.client = client_, .signature = signature, .words = std::move(encoded.words)});
}

Bytes Client::sign_survivors(View survivors) {
  begin(Phase::survivors);
  const auto inputs = decode<Survivors>(settings_, survivors).inputs;
  for (const auto& input : inputs) survivors_.push_back(input.client);
  const auto refuse = [this](const std::string& problem, const char* advice) {
    fail(settings_.round, Phase::survivors, problem, advice);
  };
  if (static_cast<int>(survivors_.size()) < settings_.minimum_survivors) {
    refuse(fmt::format("{} of {} clients are left, and a sum needs {}", survivors_.size(),
                       settings_.clients(), settings_.minimum_survivors),
           kRepeat);
  }
  if (!contains(survivors_, client_) || in_both(survivors_, sharers_) != survivors_) {
    refuse("the server's list of survivors lacks this client or has one that shared no secrets", kDistrust);
  }
  // A survivor with other sharers would lack masks that this client counts on.
  const auto message = signed_sharers(session_->digest(), sharers_);
  for (const auto& input : inputs) {
    if (!ed25519_verify(settings_.identities[static_cast<std::size_t>(input.client)], message,
                        input.signature)) {
      refuse("a survivor was told of other sharing clients than this one", kDistrust);
    }
  }
  if (session_->graph().cut(survivors_) < session_->plan().least_cut) {
    refuse("the clients that are left hang together by too few common masks: sums of parts could show",
           kRepeat);
  }
  failed_ = false;
  return encode(settings_,
                ClientSignature{.client = client_,
                                .signature = ed25519_sign(
                                    identity_, signed_survivors(session_->digest(), sharers_, survivors_))});
}

Bytes Client::reveal_shares(View signatures) {
  begin(Phase::unmasking);
  const auto list = decode<SignatureList>(settings_, signatures);
  const auto refuse = [this](const std::string& problem, const char* advice) {
    fail(settings_.round, Phase::unmasking, problem, advice);
  };
  if (static_cast<int>(list.signatures.size()) < settings_.minimum_survivors) {
    refuse(fmt::format("{} of {} clients have signed the survivors, and a sum needs {}",
                       list.signatures.size(), settings_.clients(), settings_.minimum_survivors),
           kRepeat);
  }
  const auto message = signed_survivors(session_->digest(), sharers_, survivors_);
  for (const auto& entry : list.signatures) {
    if (!contains(survivors_, entry.client) ||
        !ed25519_verify(settings_.identities[static_cast<std::size_t>(entry.client)], message,
                        entry.signature)) {
      refuse("a signature is not for the survivors that this client was told of", kDistrust);
    }
  }
  Reveal reveal{.client = client_};
  for (const auto& [owner, shares] : held_) {
    const bool survived = contains(survivors_, owner);
    reveal.shares.push_back({.owner = owner,
                             .of_self_seed = survived,
                             .bytes = survived ? shares.of_self_seed : shares.of_mask_key});
  }
  held_.clear();
  failed_ = false;
  return encode(settings_, reveal);
}

}  // namespace dtrain::secure_aggregation
