#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/step/step.hpp"
#include "parallel/strategy/federated/federated_privacy.hpp"
#include "parallel/strategy/federated/round_sum.hpp"
#include "parallel/strategy/federated/secure/letters.hpp"
#include "parallel/strategy/federated/secure/secure_terms.hpp"
#include "parallel/strategy/strategy.hpp"
#include "privacy/keystream.hpp"
#include "secure_aggregation/client.hpp"
#include "secure_aggregation/server.hpp"

namespace dtrain::parallel {

/// The sum of a round's updates, of which the server sees nothing but the sum (lib/secure_aggregation). Data
/// rank 0 is the server, and simulates no client: of a client, masked integers, public keys and sealed shares
/// come to its memory. Each other rank simulates its clients, each with keys and shares of its own.
///
/// In a round: each rank draws an Ed25519 identity for each of its clients, and all ranks exchange the public
/// ones, which stands for a directory of keys that the clients trust. A round that is repeated after a loss
/// has others, so that no key serves twice. Keys and shares are exchanged before the clients train; a client
/// hands its masked update in when it has trained, so that a rank holds one update at a time. Then survivors
/// are signed, and shares unmask the sum. The server gives the mean to all ranks, which apply it to their
/// copies of the global model.
///
/// A client that drops out (RoundPlan::dropouts), or is late, sends no more messages: its masks are taken off
/// by the others' shares. With fewer clients than the threshold the round fails: the global model stays. A
/// rank that dies ends the round: the others repeat it with its clients, where the run recovers. What a
/// private run's ledger counts of a round is in its file before the server tells any rank of the sum.
class SecureRounds final : public RoundSum {
 public:
  static Answer can(const Setting& setting);

  /// For updates of `values` numbers. `privacy`, which may be null, is borrowed. Collective: nothing is sent.
  /// Throws Error (exit code 2) without libsodium, or where a sum would hide nothing or not fit; (exit code
  /// 5) where the server's place is taken by a rank that was another one before.
  SecureRounds(const StrategyParts& parts, std::int64_t values, const FederatedPrivacy* privacy);
  ~SecureRounds() override;

  /// Exchanges keys and shares of the round's clients.
  void begin(const StepPlan& plan) override;
  bool has_failed() const override { return has_failed_; }
  /// Sends at most one message in kLifeSignS.
  void show_life() override;
  /// Where noise demands it, clips the update's norm. What its local steps came to is in the sum alone.
  bool hand_in(const ClientUpdate& update, StepTotals& own) override;
  /// With noise clients count alike, and samples and totals are not summed; otherwise totals are there to the
  /// rounding of the sum.
  Result finish(at::Tensor& mean) override;

  static constexpr double kLifeSignS = 1;

 private:
  using Phase = secure_aggregation::Phase;
  /// A client that this rank simulates.
  struct Own {
    int place = 0;                                                 ///< Among the clients of the round.
    int answers = 0;                                               ///< Phases that it answers.
    std::unique_ptr<secure_aggregation::Client> client = nullptr;  ///< Null without masks.
    secure_aggregation::Bytes received = {};                       ///< The newest message for it.
    bool is_in = true;                                             ///< It has answered all so far.
  };
  using Reply = std::function<secure_aggregation::Bytes(Own&)>;

  bool is_server() const { return parts_.data.rank() == 0; }
  int place_of(int client) const;
  void make_clients();
  void run_phase(Phase phase, const Reply& reply);
  void answer(Own& own, Phase phase, const Reply& reply);
  void collect();
  void end_phase(Phase phase);
  void close_phase();
  void deliver();
  void take(int rank, int place, secure_aggregation::View bytes);
  void add_plain(int place, secure_aggregation::View words);
  std::vector<float> values_of(const at::Tensor& update, const StepTotals& totals) const;
  secure_aggregation::Sum sum() const;
  void give_mean(at::Tensor& mean, Result& result);
  void tell_of(Result& result, double cut);

  StrategyParts parts_;
  SecureOptions options_;
  std::int64_t values_;
  int local_epochs_;
  const FederatedPrivacy* privacy_;  // null: the run is not private
  Letters letters_;
  secure_aggregation::Settings settings_;
  std::unique_ptr<privacy::Keystream> random_;  // of all clients of this rank; null without masks
  std::shared_ptr<const RoundPlan> round_;
  std::vector<Own> own_;
  std::optional<secure_aggregation::Server> server_;  // on rank 0, with masks
  secure_aggregation::Bytes plain_;                   // [length + 1] on rank 0 without masks, their sum
  std::vector<int> in_plain_;                         // places of the clients in it
  std::map<int, int> rank_of_;  // on rank 0, by place: where its first message came from
  int refused_ = 0;             // messages, on rank 0
  std::string problem_;         // on rank 0
  bool has_failed_ = false;
  bool has_told_ = false;
  bool has_cut_ = false;
  double life_sign_s_ = 0;
};

}  // namespace dtrain::parallel
