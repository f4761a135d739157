#pragma once

#include <cstdint>

namespace dtrain::parallel {

/// Models that clients have of their own, beside the agreed one: clients that train alone.
class ClientModels {
 public:
  ClientModels() = default;
  virtual ~ClientModels() = default;
  ClientModels(const ClientModels&) = delete;
  ClientModels& operator=(const ClientModels&) = delete;

  /// The model gets the weights and buffers that a client has come to by its last round, of those up to
  /// `round`; the agreed ones are not there any more. Not collective, but all ranks make the same calls.
  /// Throws Error (exit code 4).
  virtual void show(int client, std::int64_t round) = 0;
};

}  // namespace dtrain::parallel
