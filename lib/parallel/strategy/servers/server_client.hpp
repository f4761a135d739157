#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/emulation/virtual_clock.hpp"
#include "parallel/strategy/servers/server_messages.hpp"
#include "parallel/strategy/servers/server_roles.hpp"

namespace dtrain::parallel {

/// A copy's talk with the servers. Each call waits for servers, and never for another copy, but where a bound
/// on the staleness makes the server that deals wait.
class ServerClient {
 public:
  /// `clock`: of an emulated machine, or null. `lines` and `clock` are borrowed.
  ServerClient(const ServerLines& lines, const ServerRoles& roles, comm::VirtualClock* clock)
      : lines_(lines),
        roles_(roles),
        clock_(clock),
        versions_(static_cast<std::size_t>(roles.servers()), 0) {}

  /// The next micro-batch for this copy, with the newest parameters [n], from all servers; empty: there is no
  /// more, and the copy is done.
  std::optional<WorkUnit> take_work(const at::Tensor& parameters);
  /// Hands a gradient [n] to all servers; or with Kind::skip nothing.
  void push(const ServerMessage& message, const at::Tensor& gradient);

  /// The next micro-batch alone. Where it is empty, finish() is to follow.
  std::optional<WorkUnit> draw();
  /// Gives `mine` [n] to all servers, and gets what they have had before: `theirs` [n].
  void exchange(const at::Tensor& mine, const at::Tensor& theirs);
  void finish();  ///< The copy is done.

 private:
  void send(const ServerMessage& message, int server, const at::Tensor& numbers = {});
  ServerAnswer receive(int server, const at::Tensor& numbers = {});

  const ServerLines& lines_;
  ServerRoles roles_;
  comm::VirtualClock* clock_;
  std::vector<std::int64_t> versions_;  // of the parameters here, by server
};

}  // namespace dtrain::parallel
