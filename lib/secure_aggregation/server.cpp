#include "secure_aggregation/server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "secure_aggregation/masks.hpp"

namespace dtrain::secure_aggregation {
namespace {

constexpr const char* kLeaveOut = "leave its sender out, or repeat the round";

void insert(std::vector<int>& list, int client) {
  list.insert(std::lower_bound(list.begin(), list.end(), client), client);
}

template <class Entry>
void sort_by_client(std::vector<Entry>& list) {
  std::sort(list.begin(), list.end(),
            [](const Entry& one, const Entry& other) { return one.client < other.client; });
}

}  // namespace

std::vector<double> Sum::means(const FixedPoint& format) const {
  std::vector<double> means(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) means[i] = number(format, values[i], weight);
  return means;
}

Server::Server(Settings settings) : settings_(std::move(settings)) {
  settings_.validate();
  expected_.resize(settings_.identities.size());
  std::iota(expected_.begin(), expected_.end(), 0);
  words_.resize((settings_.length + 1) * static_cast<std::size_t>(settings_.format.ring_bits / 8));
}

void Server::take(int client, View message) {
  const auto expect_from = [&](int said) {
    if (said != client) fail(settings_.round, phase_, "a message is in another client's name", kLeaveOut);
  };
  if (phase_ == Phase::done || !contains(expected_, client) || contains(arrived_, client)) {
    fail(settings_.round, phase_, "a message comes a second time or too late", kLeaveOut);
  }
  switch (phase_) {
    case Phase::keys: {
      const auto keys = decode<Keys>(settings_, message);
      expect_from(keys.client);
      take_keys(keys);
      break;
    }
    case Phase::shares: {
      const auto bundle = decode<ShareBundle>(settings_, message);
      expect_from(bundle.client);
      take_shares(bundle);
      break;
    }
    case Phase::masked_inputs: {
      const auto input = decode<MaskedInput>(settings_, message);
      expect_from(input.client);
      if (!ed25519_verify(settings_.identities[static_cast<std::size_t>(client)],
                          signed_sharers(session_->digest(), sharers_), input.signature)) {
        fail(settings_.round, phase_, "a signature is not for these sharing clients", kLeaveOut);
      }
      inputs_.push_back({.client = client, .signature = input.signature});
      add_words(words_, input.words, settings_.format.ring_bits);
      break;
    }
    case Phase::survivors: {
      const auto signature = decode<ClientSignature>(settings_, message);
      expect_from(signature.client);
      if (!ed25519_verify(settings_.identities[static_cast<std::size_t>(client)],
                          signed_survivors(session_->digest(), sharers_, survivors_), signature.signature)) {
        fail(settings_.round, phase_, "a signature is not for these survivors", kLeaveOut);
      }
      signatures_.push_back(signature);
      break;
    }
    case Phase::unmasking: {
      const auto reveal = decode<Reveal>(settings_, message);
      expect_from(reveal.client);
      take_reveal(reveal);
      break;
    }
    case Phase::done:
      break;
  }
  insert(arrived_, client);
}

void Server::take_keys(const Keys& keys) {
  if (!ed25519_verify(settings_.identities[static_cast<std::size_t>(keys.client)],
                      signed_keys(settings_.digest(), keys), keys.signature)) {
    fail(settings_.round, phase_, "a key is not signed by its client for this round and these settings",
         kLeaveOut);
  }
  keys_[keys.client] = keys;
}

void Server::take_shares(const ShareBundle& bundle) {
  std::vector<int> to;
  for (const auto& share : bundle.shares) to.push_back(share.client);
  if (to != session_->graph().neighbours(bundle.client)) {
    fail(settings_.round, phase_, "the shares of a client are not for its neighbours", kLeaveOut);
  }
  for (const auto& share : bundle.shares) {
    sealed_[share.client].push_back({.client = bundle.client, .sealed = share.sealed});
  }
}

void Server::take_reveal(const Reveal& reveal) {
  std::vector<int> owners;
  for (const auto& share : reveal.shares) {
    owners.push_back(share.owner);
    if (share.of_self_seed != contains(survivors_, share.owner)) {
      fail(settings_.round, phase_, "a revealed share is of the wrong secret", kLeaveOut);
    }
  }
  if (owners != in_both(session_->graph().holders(reveal.client), sharers_)) {
    fail(settings_.round, phase_, "revealed shares are not those that their sender holds", kLeaveOut);
  }
  for (const auto& share : reveal.shares) {
    revealed_[share.owner].push_back(
        {.place = session_->place(share.owner, reveal.client), .bytes = share.bytes});
  }
}

void Server::close_phase() {
  if (phase_ == Phase::done) fail(settings_.round, phase_, "the round has ended", "begin another");
  if (static_cast<int>(arrived_.size()) < settings_.minimum_survivors) {
    fail(settings_.round, phase_,
         fmt::format("{} of {} clients have answered, and a sum needs {}", arrived_.size(),
                     settings_.clients(), settings_.minimum_survivors),
         "repeat the round, and wait longer for its clients");
  }
  switch (phase_) {
    case Phase::keys: {
      Roster roster;
      for (const auto& [client, keys] : keys_) roster.keys.push_back(keys);
      session_.emplace(settings_, std::move(roster));
      break;
    }
    case Phase::shares:
      sharers_ = arrived_;
      for (auto& [receiver, shares] : sealed_) sort_by_client(shares);
      break;
    case Phase::masked_inputs:
      survivors_ = arrived_;
      sort_by_client(inputs_);
      sealed_.clear();
      break;
    case Phase::survivors:
      sort_by_client(signatures_);
      break;
    case Phase::unmasking:
      unmask();
      break;
    case Phase::done:
      break;
  }
  expected_ = std::move(arrived_);
  arrived_.clear();
  phase_ = static_cast<Phase>(static_cast<int>(phase_) + 1);
}

Bytes Server::message_for(int client) const {
  switch (phase_) {
    case Phase::shares: {
      Roster roster;
      for (const auto& [other, keys] : keys_) roster.keys.push_back(keys);
      return encode(settings_, roster);
    }
    case Phase::masked_inputs: {
      const auto found = sealed_.find(client);
      return encode(settings_, ShareDelivery{.sharers = sharers_,
                                             .shares = found == sealed_.end() ? std::vector<SealedShares>()
                                                                              : found->second});
    }
    case Phase::survivors:
      return encode(settings_, Survivors{.inputs = inputs_});
    case Phase::unmasking:
      return encode(settings_, SignatureList{.signatures = signatures_});
    case Phase::keys:
    case Phase::done:
      break;
  }
  return {};
}

/// The one secret of `owner` whose shares came back: compared with what it advertised.
Secret Server::joined(int owner) const {
  const auto found = revealed_.find(owner);
  const auto threshold = static_cast<std::size_t>(session_->plan().share_threshold);
  if (found == revealed_.end() || found->second.size() < threshold) {
    fail(settings_.round, Phase::unmasking, "too few holders of a client's shares are left",
         "repeat the round, and wait longer for its clients");
  }
  const auto secret = join_secret(std::span(found->second).first(threshold));
  const auto& keys = session_->keys(owner);
  const bool fits = contains(survivors_, owner) ? equal(sha256(secret.bytes()), keys.self_seed)
                                                : equal(x25519_public(secret), keys.mask_key);
  if (!fits) {
    fail(settings_.round, Phase::unmasking, "shares do not give the secret that they were made from",
         "repeat the round without the client whose shares are wrong");
  }
  return secret;
}

void Server::unmask() {
  const int bits = settings_.format.ring_bits;
  for (const int client : sharers_) {
    const auto secret = joined(client);
    if (contains(survivors_, client)) {
      add_mask(words_, secret, bits, Sign::minus);
      continue;
    }
    // A survivor added the mask it shares with the lost client, which did not take it off.
    for (const int other : in_both(session_->graph().neighbours(client), survivors_)) {
      add_mask(words_, mask_seed(settings_, *session_, secret, client, other), bits,
               mask_sign(client, other));
    }
  }
  sum_.emplace();
  sum_->values.resize(settings_.length);
  for (std::size_t i = 0; i < settings_.length; ++i) sum_->values[i] = element(settings_.format, words_, i);
  sum_->weight = element(settings_.format, words_, settings_.length);
  sum_->clients = survivors_;
}

const Sum& Server::sum() const {
  if (!sum_) fail(settings_.round, phase_, "the sum is not there yet", "close all phases first");
  return *sum_;
}

}  // namespace dtrain::secure_aggregation
