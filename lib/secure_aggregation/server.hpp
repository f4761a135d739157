#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "secure_aggregation/messages.hpp"
#include "secure_aggregation/session.hpp"
#include "secure_aggregation/settings.hpp"
#include "secure_aggregation/shamir.hpp"

namespace dtrain::secure_aggregation {

/// What the server learns of a round.
struct Sum {
  std::vector<std::int64_t> values;  ///< [length] sums of weighted integers (fixed_point.hpp).
  std::int64_t weight = 0;           ///< Sum of the weights.
  std::vector<int> clients;          ///< Whose values are in it, ascending.

  /// [length] The weighted means as numbers.
  std::vector<double> means(const FixedPoint& format) const;
};

/// The server in one round. For each phase: messages of clients come by take(), in any order; close_phase()
/// goes on with those that came, and message_for() says what each client then gets. It keeps the sum of the
/// masked inputs, not the inputs.
class Server {
 public:
  /// Throws Error (exit code 2) for settings that cannot work.
  explicit Server(Settings settings);

  Phase phase() const { return phase_; }
  /// The clients that this phase waits for: those that took part in the phase before.
  const std::vector<int>& expected() const { return expected_; }

  /// A message of this phase from `client`, as the connection says. Throws Error, and is as before, for one
  /// that is none or comes twice: the client may be left out.
  void take(int client, View message);
  /// Throws Error, naming round and phase, where fewer clients than the threshold are left, or too few of a
  /// client's shares have come back.
  void close_phase();
  /// What `client`, one of expected(), gets in this phase. Phase keys begins without.
  Bytes message_for(int client) const;
  /// After the last phase.
  const Sum& sum() const;

 private:
  void take_keys(const Keys& keys);
  void take_shares(const ShareBundle& bundle);
  void take_reveal(const Reveal& reveal);
  Secret joined(int owner) const;
  void unmask();

  Settings settings_;
  Phase phase_ = Phase::keys;
  std::vector<int> expected_;
  std::vector<int> arrived_;
  std::map<int, Keys> keys_;
  std::optional<Session> session_;
  std::map<int, std::vector<SealedShares>> sealed_;  // by receiver; the client in each is the sender
  std::vector<int> sharers_;
  std::vector<int> survivors_;
  std::vector<ClientSignature> inputs_;  // with the masked inputs
  Bytes words_;                          // the sum of masked inputs
  std::vector<ClientSignature> signatures_;
  std::map<int, std::vector<Share>> revealed_;  // by owner
  std::optional<Sum> sum_;
};

}  // namespace dtrain::secure_aggregation
