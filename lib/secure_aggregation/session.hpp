#pragma once

#include <vector>

#include "secure_aggregation/graph.hpp"
#include "secure_aggregation/masks.hpp"
#include "secure_aggregation/messages.hpp"
#include "secure_aggregation/settings.hpp"

namespace dtrain::secure_aggregation {

/// What follows from the settings and the roster, for the server and each client alike.
class Session {
 public:
  /// Throws Error where a key is not signed by its client's identity, or fewer than the threshold have keys.
  Session(const Settings& settings, Roster roster);

  const Digest& digest() const { return digest_; }
  const Graph& graph() const { return graph_; }
  const GraphPlan& plan() const { return plan_; }
  /// `client` must be in the roster.
  const Keys& keys(int client) const;
  /// The place of `holder` among the holders of `owner`'s shares, from 1 on.
  std::uint8_t place(int owner, int holder) const;

 private:
  Roster roster_;
  Digest digest_;
  GraphPlan plan_;
  Graph graph_;
};

/// The seed of the mask that two clients share: X25519 of one's private and the other's public mask key, then
/// HKDF. The same from either side. Throws Error where the public key is none.
Secret mask_seed(const Settings& settings, const Session& session, const Secret& own_key, int own, int other);

/// The key of the shares that `from` seals for `to`, by either of them. One message is sealed with it.
Secret share_key(const Settings& settings, const Session& session, const Secret& own_key, int own, int from,
                 int to);

/// With which sign `own` adds the mask that it shares with `other`, which adds it with the opposite one.
Sign mask_sign(int own, int other);

/// The elements of two ascending lists that both have.
std::vector<int> in_both(const std::vector<int>& one, const std::vector<int>& other);
bool contains(const std::vector<int>& list, int client);

}  // namespace dtrain::secure_aggregation
