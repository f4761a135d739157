#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "secure_aggregation/client.hpp"
#include "secure_aggregation/server.hpp"

namespace dtrain::secure_aggregation {

inline constexpr Phase kPhases[] = {Phase::keys, Phase::shares, Phase::masked_inputs, Phase::survivors,
                                    Phase::unmasking};

inline Block<32> key_of(int seed, int client, int purpose) {
  Block<32> key = {};
  key[0] = static_cast<std::byte>(seed & 255);
  key[1] = static_cast<std::byte>(seed >> 8);
  key[2] = static_cast<std::byte>(client & 255);
  key[3] = static_cast<std::byte>(client >> 8);
  key[4] = static_cast<std::byte>(purpose);
  return key;
}

/// One message, as the server saw it.
struct Sent {
  Phase phase;
  int client;
  Bytes bytes;
};

/// A server and its clients in one process. All secrets follow from `seed`.
class Round {
 public:
  Round(Settings settings, int clients, int seed) : settings_(std::move(settings)) {
    std::vector<Secret> identities;
    for (int client = 0; client < clients; ++client) {
      identities.emplace_back(key_of(seed, client, 1));
      settings_.identities.push_back(ed25519_public(identities.back()));
    }
    std::mt19937 draws(static_cast<unsigned>(seed));
    std::uniform_real_distribution<float> value(-1.1F * static_cast<float>(settings_.format.largest),
                                                1.1F * static_cast<float>(settings_.format.largest));
    for (int client = 0; client < clients; ++client) {
      randoms_.push_back(std::make_unique<privacy::Keystream>(key_of(seed, client, 2)));
      clients_.push_back(std::make_unique<Client>(
          settings_, client, identities[static_cast<std::size_t>(client)], *randoms_.back()));
      auto& values = values_.emplace_back(settings_.length);
      for (auto& one : values) one = value(draws);
      weights_.push_back(1 + draws() % settings_.format.largest_weight());
    }
    server_ = std::make_unique<Server>(settings_);
  }

  const Settings& settings() const { return settings_; }
  Server& server() { return *server_; }
  Client& client(int client) { return *clients_[static_cast<std::size_t>(client)]; }
  std::vector<float>& values(int client) { return values_[static_cast<std::size_t>(client)]; }
  std::uint64_t& weight(int client) { return weights_[static_cast<std::size_t>(client)]; }
  const std::vector<Sent>& transcript() const { return transcript_; }

  /// What a client and the server say to one another may be changed on the way.
  std::function<void(Phase, int client, Bytes&)> to_client = [](Phase, int, Bytes&) {};
  std::function<void(Phase, int client, Bytes&)> to_server = [](Phase, int, Bytes&) {};

  Bytes answer(Phase phase, int number, View message) {
    auto& one = client(number);
    switch (phase) {
      case Phase::keys:
        return one.advertise_keys();
      case Phase::shares:
        return one.share_keys(message);
      case Phase::masked_inputs:
        return one.mask_input(message, values(number), weight(number));
      case Phase::survivors:
        return one.sign_survivors(message);
      case Phase::unmasking:
        return one.reveal_shares(message);
      case Phase::done:
        break;
    }
    return {};
  }

  /// The messages of one phase, without those of `silent`, and its end.
  void run_phase(const std::set<int>& silent = {}) {
    const auto phase = server_->phase();
    for (const int number : server_->expected()) {
      if (silent.contains(number)) continue;
      auto message = server_->message_for(number);
      to_client(phase, number, message);
      auto reply = answer(phase, number, message);
      to_server(phase, number, reply);
      transcript_.push_back({phase, number, reply});
      server_->take(number, reply);
    }
    server_->close_phase();
  }

  /// All phases. `lost`: which clients are silent from a phase on.
  void run(const std::map<Phase, std::set<int>>& lost = {}) {
    std::set<int> silent;
    while (server_->phase() != Phase::done) {
      if (const auto found = lost.find(server_->phase()); found != lost.end()) {
        silent.insert(found->second.begin(), found->second.end());
      }
      run_phase(silent);
    }
  }

  /// [length + 1] What the clients' integers add up to without any mask; the last is the weight.
  std::vector<std::int64_t> plain_sum(const std::vector<int>& among) const {
    std::vector<std::int64_t> sum(settings_.length + 1, 0);
    for (const int number : among) {
      const auto encoded = encode(settings_.format, values_[static_cast<std::size_t>(number)],
                                  weights_[static_cast<std::size_t>(number)], "plain");
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += element(settings_.format, encoded.words, i);
    }
    return sum;
  }

 private:
  Settings settings_;
  std::vector<std::unique_ptr<privacy::Keystream>> randoms_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::unique_ptr<Server> server_;
  std::vector<std::vector<float>> values_;
  std::vector<std::uint64_t> weights_;
  std::vector<Sent> transcript_;
};

}  // namespace dtrain::secure_aggregation
