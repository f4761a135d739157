#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "privacy/keystream.hpp"
#include "secure_aggregation/messages.hpp"
#include "secure_aggregation/primitives.hpp"
#include "secure_aggregation/session.hpp"
#include "secure_aggregation/settings.hpp"

namespace dtrain::secure_aggregation {

/// One client in one round. Each function takes the server's message of its phase and gives the client's; it
/// answers once, in this order. After an Error the client takes no further part: it gives no second answer.
///
/// The server learns the sum of at least `minimum_survivors` clients and no more, even if it lies about keys,
/// shares or survivors, as long as the clients that it controls are fewer than 2 * minimum_survivors -
/// clients, fewer among the holders of a client's shares than the threshold of these, and fewer in any two
/// stretches of the ring than the least cut (graph.hpp). Source: Bonawitz et al. 2017, figure 4, with the
/// round of consistency; Bell et al. 2020 for the graph.
class Client {
 public:
  /// `identity`: the private key of settings.identities[client]. Keys, seeds and shares are drawn from
  /// `random`, which must live as long. Throws Error (exit code 2) for settings that cannot work.
  Client(Settings settings, int client, const Secret& identity, privacy::Keystream& random);

  /// Phase keys.
  Bytes advertise_keys();
  /// Phase shares. `roster`: whose keys the server has. Throws Error for keys that are not signed.
  Bytes share_keys(View roster);
  /// Phase masked inputs. `values`: [settings.length]. `weight`: how often they count. Throws Error for a
  /// share that does not authenticate, and as encode().
  Bytes mask_input(View delivery, std::span<const float> values, std::uint64_t weight);
  /// Phase survivors. Throws Error where this client is not among them, they are too few, or one of them was
  /// told of other sharing clients.
  Bytes sign_survivors(View survivors);
  /// Phase unmasking. Throws Error unless enough clients have signed the same survivors. Gives for each
  /// neighbour a share of one of its secrets: of the self mask's seed for a survivor, of the mask key for a
  /// lost client.
  Bytes reveal_shares(View signatures);

  /// Values that were beyond the largest; known after mask_input().
  std::size_t saturated() const { return saturated_; }

 private:
  struct HeldShares {
    Block<32> of_mask_key = {};
    Block<32> of_self_seed = {};
  };

  void begin(Phase phase);
  void open_shares(const ShareDelivery& delivery);

  Settings settings_;
  int client_;
  Secret identity_;
  privacy::Keystream& random_;
  Phase next_ = Phase::keys;
  bool failed_ = false;
  Secret mask_key_;
  Secret share_key_;
  Secret self_seed_;
  Keys keys_;
  std::optional<Session> session_;
  std::map<int, HeldShares> held_;  // by owner
  std::vector<int> sharers_;        // clients that sent shares
  std::vector<int> survivors_;      // clients whose masked inputs the server says it has
  std::size_t saturated_ = 0;
};

}  // namespace dtrain::secure_aggregation
