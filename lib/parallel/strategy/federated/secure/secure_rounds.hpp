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
#include "parallel/strategy/federated/secure/letters.hpp"
#include "parallel/strategy/federated/secure/secure_releases.hpp"
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
/// rank that dies ends the round: the others repeat it with its clients, where the run recovers.
class SecureRounds {
 public:
  static Answer can(const Setting& setting);

  /// For updates of `values` numbers. Collective: nothing is sent. Throws Error (exit code 2) without
  /// libsodium; (exit code 5) where the server's place is taken by a rank that was another one before.
  SecureRounds(const StrategyParts& parts, std::int64_t values);
  ~SecureRounds();

  /// Exchanges keys and shares of the round's clients. Collective.
  void begin(const StepPlan& plan);
  /// Too few clients are left, after begin(): no client need train. Not collective.
  bool has_failed() const { return has_failed_; }
  /// A client of this rank still trains. Sends at most one message in kLifeSignS.
  void show_life();

  /// The update [n] of a client of this rank, all finite, float or double; it is changed where noise demands
  /// a smaller norm. `own`: what its local steps came to, and nothing else.
  void hand_in(const ClientWork& work, at::Tensor& update, const StepTotals& own);

  /// What the server has found; the same on all ranks.
  struct Result {
    std::string problem;       ///< On rank 0: why the round has failed; empty where it has not.
    std::string news;          ///< On rank 0, in the first round in which values were cut: how many.
    int clients = 0;           ///< In the sum; 0: the round has failed.
    std::int64_t samples = 0;  ///< Of these; 0 with noise, where weights are equal.
    StepTotals totals;         ///< Of their local steps, to the rounding of the sum; nothing with noise.
  };
  /// `mean` [n] becomes the mean update, weighted by samples, with noise without weights; as it was where the
  /// round has failed. Collective.
  Result finish(at::Tensor& mean);

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
  std::vector<float> values_of(at::Tensor& update, const StepTotals& own) const;
  secure_aggregation::Sum sum() const;
  void give_mean(at::Tensor& mean, Result& result);
  void tell_of(Result& result, double cut);

  StrategyParts parts_;
  SecureOptions options_;
  std::int64_t values_;
  int local_epochs_;
  Letters letters_;
  SecureReleases releases_;
  std::unique_ptr<privacy::Keystream> random_;  // of all clients of this rank; null without masks
  secure_aggregation::Settings settings_;
  std::shared_ptr<const RoundPlan> round_;
  std::vector<Own> own_;
  std::optional<secure_aggregation::Server> server_;  // on rank 0, with masks
  secure_aggregation::Bytes plain_;                   // [length + 1] on rank 0 without masks, their sum
  std::vector<int> in_plain_;                         // places of the clients in it
  std::map<int, int> rank_of_;  // on rank 0, by place: where its first message came from
  std::int64_t released_ = 0;   // sums with noise, on rank 0
  int refused_ = 0;             // messages, on rank 0
  std::string problem_;         // on rank 0
  bool has_failed_ = false;
  bool has_told_ = false;
  bool has_cut_ = false;
  double life_sign_s_ = 0;
};

}  // namespace dtrain::parallel
