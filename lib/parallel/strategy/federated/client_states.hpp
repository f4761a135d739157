#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "parallel/strategy/strategy.hpp"

namespace dtrain::parallel {

/// What clients keep from round to round, in files: no rank holds what belongs to a client that it does not
/// simulate. A file has the state of one client after one round in which it handed in, and is written aside
/// and renamed. All ranks see the folder.
class ClientStates {
 public:
  /// `folder`: not touched before the first round, since the run that it replaces may still be there.
  explicit ClientStates(std::filesystem::path folder);

  /// Before the clients of a round: what a run that goes on from a checkpoint needs is found out. In this
  /// process's first, the folder is made where it is not there, and states of later rounds, from a run that
  /// this one does again, are removed. Collective. Throws Error where the folder cannot be made or read.
  void begin_round(const StrategyParts& parts, std::int64_t round);
  /// StrategyParts::kept_steps() when the round began, for store().
  const std::vector<std::int64_t>& kept() const { return kept_; }

  /// The client's state after the last round before `round` in which it handed in, into values [n]; zeros
  /// where there is none. Throws Error (exit code 4) where a file is not as long as the state, or unreadable.
  void load(int client, std::int64_t round, at::Tensor& values) const;

  /// Keeps its state after `round`. Of rounds up to the last of `kept`, ascending, those remain that a run
  /// needs which goes on after one of them; of later ones a checkpoint may be on its way. Throws Error (exit
  /// code 4) where the disk does not take it.
  void store(int client, std::int64_t round, const at::Tensor& values,
             const std::vector<std::int64_t>& kept) const;

  /// Removes all states of `round` and later ones: they are from a run that had gone further.
  void forget_from(std::int64_t round) const;

 private:
  std::filesystem::path folder_of(int client) const;

  std::filesystem::path folder_;
  std::vector<std::int64_t> kept_;
  bool begun_ = false;  // a round, by this process
};

/// Copies what the clients of another run keep in `from` to `to`: of each the newest state up to `round`,
/// which a run needs that goes on from that run's checkpoint. By one rank. Throws Error (exit code 4) where
/// `from` is not there or cannot be copied.
void copy_client_states(const std::filesystem::path& from, const std::filesystem::path& to,
                        std::int64_t round);

}  // namespace dtrain::parallel
