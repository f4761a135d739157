#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "parallel/strategy/private_training.hpp"
#include "train/loop/run_outputs.hpp"

namespace dtrain::train {

/// What a run with differential privacy (`--dp-clip`) keeps and says of its ledger, and when it has to end.
/// Where no step is private, nothing happens here.
class PrivacyAccount {
 public:
  struct Parts {
    parallel::PrivateTraining* training = nullptr;  ///< Null: no step is private.
    std::string folder;                             ///< Of the run.
    bool speaks = false;                            ///< This rank tells what happens.
    RunOutputs& outputs;
    /// Says what has happened; `kind`: of the event, and of the line in the log.
    std::function<void(const std::string& kind, const std::string& words)> tell;
  };
  /// Everything in it is borrowed.
  explicit PrivacyAccount(Parts parts) : parts_(std::move(parts)) {}

  bool is_private() const { return parts_.training != nullptr; }

  /// Takes over what earlier parts of the run have released, after the checkpoint that it goes on from.
  /// `expected`: there were some. Throws Error (exit code 4) where their ledger is missing then.
  /// `standardised`: by figures that staging has computed.
  void begin(bool expected, bool standardised);

  /// After each private step, before anything else of it is written.
  void after_step();

  /// What has been released up to step `step`, for results and log. May take a second.
  void after_epoch(int epoch, std::int64_t step);

  /// When the run ends: what each client has released, where each has a ledger of its own.
  void finish();

  /// Whether no private step may follow. All ranks decide alike. Collective.
  bool is_spent() { return is_private() && parts_.training->is_spent(); }

  /// Why the run ends after step `step`, once is_spent().
  std::string why_spent(std::int64_t step) const;

 private:
  void take_ledger(bool expected);

  Parts parts_;
};

}  // namespace dtrain::train
