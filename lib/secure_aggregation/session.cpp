#include "secure_aggregation/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "secure_aggregation/byte_io.hpp"

namespace dtrain::secure_aggregation {
namespace {

std::vector<int> clients_of(const Roster& roster) {
  std::vector<int> clients;
  for (const auto& keys : roster.keys) clients.push_back(keys.client);
  return clients;
}

Digest session_digest(const Settings& settings, const Roster& roster) {
  Writer writer;
  writer.text("dtrain secure aggregation session");
  writer.bytes(settings.digest());
  writer.bytes(encode(settings, roster));
  return sha256(writer.written());
}

/// HKDF of a shared secret. `purpose` and the two clients are the context.
Secret derived(const Settings& settings, const Session& session, const Secret& own_key,
               const PublicKey& other_key, std::string_view purpose, int one, int other) {
  const auto shared = x25519(own_key, other_key);
  if (!shared) {
    fail(settings.round, Phase::shares, "a public key is no point that gives a secret",
         "leave its sender out, and check that client");
  }
  Writer info;
  info.text(purpose);
  info.integer(static_cast<std::uint32_t>(one));
  info.integer(static_cast<std::uint32_t>(other));
  Secret key;
  hkdf(shared->bytes(), session.digest(), info.written(), key.bytes());
  return key;
}

}  // namespace

Session::Session(const Settings& settings, Roster roster)
    : roster_(std::move(roster)),
      digest_(session_digest(settings, roster_)),
      plan_(plan_graph(settings.clients(), settings.minimum_survivors)),
      graph_(clients_of(roster_), plan_.neighbours, digest_) {
  if (static_cast<int>(roster_.keys.size()) < settings.minimum_survivors) {
    fail(settings.round, Phase::shares,
         fmt::format("{} of {} clients have sent keys, and a sum needs {}", roster_.keys.size(),
                     settings.clients(), settings.minimum_survivors),
         "repeat the round with clients that answer");
  }
  const auto settings_digest = settings.digest();
  for (const auto& keys : roster_.keys) {
    const auto& identity = settings.identities[static_cast<std::size_t>(keys.client)];
    if (!ed25519_verify(identity, signed_keys(settings_digest, keys), keys.signature)) {
      fail(settings.round, Phase::shares,
           "a key is not signed by its client for this round and these settings",
           "compare the settings and identities of all clients");
    }
  }
}

const Keys& Session::keys(int client) const {
  return *std::lower_bound(roster_.keys.begin(), roster_.keys.end(), client,
                           [](const Keys& keys, int wanted) { return keys.client < wanted; });
}

std::uint8_t Session::place(int owner, int holder) const {
  const auto holders = graph_.holders(owner);
  return static_cast<std::uint8_t>(std::lower_bound(holders.begin(), holders.end(), holder) -
                                   holders.begin() + 1);
}

Secret mask_seed(const Settings& settings, const Session& session, const Secret& own_key, int own,
                 int other) {
  return derived(settings, session, own_key, session.keys(other).mask_key, "mask", std::min(own, other),
                 std::max(own, other));
}

Secret share_key(const Settings& settings, const Session& session, const Secret& own_key, int own, int from,
                 int to) {
  return derived(settings, session, own_key, session.keys(own == from ? to : from).share_key, "shares", from,
                 to);
}

Sign mask_sign(int own, int other) { return own < other ? Sign::plus : Sign::minus; }

std::vector<int> in_both(const std::vector<int>& one, const std::vector<int>& other) {
  std::vector<int> both;
  std::set_intersection(one.begin(), one.end(), other.begin(), other.end(), std::back_inserter(both));
  return both;
}

bool contains(const std::vector<int>& list, int client) {
  return std::binary_search(list.begin(), list.end(), client);
}

}  // namespace dtrain::secure_aggregation
