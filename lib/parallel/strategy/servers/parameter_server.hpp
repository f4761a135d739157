#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/emulation/virtual_clock.hpp"
#include "comm/queue.hpp"
#include "core/slice.hpp"
#include "core/span_sink.hpp"
#include "parallel/strategy/servers/dealing.hpp"
#include "parallel/strategy/servers/server_messages.hpp"

namespace dtrain::parallel {

/// Keeps a part of the parameters: applies what copies push as it comes, and answers what they ask. Its
/// memory is bounded: one gradient of its part at a time, and one answer on its way for each copy.
class ParameterServer {
 public:
  struct Parts {
    const ServerLines& lines;
    comm::Queue& queue;
    /// In a thread of its own the server sleeps where it waits, and leaves the queue to the thread that
    /// drives it.
    enum class Runs { as_the_rank, in_a_thread } runs = Runs::as_the_rank;
    SpanSink& sink;
    int copies = 1;     ///< The first data ranks.
    Range part;         ///< Of the flat parameters, kept here.
    at::Tensor values;  ///< [n], all of them.
    comm::VirtualClock* clock = nullptr;
    /// Updates the part by a gradient, or a copy's parameters, [n], of which it reads the part; `number`: of
    /// the update, from 1.
    std::function<void(const at::Tensor& given, double scale, double rate, std::int64_t number)> update;
    bool divides_rate = false;  ///< By the number of updates that a gradient is late.
  };
  /// Everything in it is borrowed.
  explicit ParameterServer(Parts parts);
  ~ParameterServer();

  /// Serves until all copies have nothing more to do. `dealing`: of the one server that deals; null: another
  /// one does. `version`: updates done so far. Returns how many updates were late by how many others.
  std::vector<std::int64_t> serve(Dealing* dealing, std::int64_t version);

 private:
  struct Copy;
  void await_message(Copy& copy);
  Copy& next_message();
  Copy* earliest();
  void take(Copy& copy);
  void apply(const ServerMessage& message, int copy);
  void exchange(Copy& copy, const ServerMessage& message);
  void hand_out_work();
  void answer(Copy& copy, const ServerAnswer& answer, bool with_parameters);
  void settle(const comm::Handle& operation);
  void receive_numbers(int copy);
  void arrive(const ServerMessage& message, int copy, double bytes);

  Parts parts_;
  at::Tensor given_;  // [n], of which the part is used
  std::vector<std::unique_ptr<Copy>> copies_;
  Dealing* dealing_ = nullptr;
  std::int64_t version_ = 0;
  std::vector<std::int64_t> late_;
};

}  // namespace dtrain::parallel
