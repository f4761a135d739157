#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/emulation/virtual_clock.hpp"
#include "comm/group.hpp"
#include "core/slice.hpp"
#include "core/span_sink.hpp"
#include "parallel/strategy/dealing.hpp"

namespace dtrain::parallel {

/// What a copy sends to a server: one header, and behind a push its gradient.
struct ServerMessage {
  enum class Kind : std::uint8_t {
    push,    ///< A gradient follows, to be applied. Servers that do not deal answer when it is.
    skip,    ///< As push, but the gradient was not finite: nothing follows, nothing is applied.
    work,    ///< To the server that deals: asks for a micro-batch; the answer brings parameters with it.
    pull,    ///< Asks for parameters.
    finish,  ///< The copy has nothing more to do. Not to the server that deals, which says so itself.
  };
  Kind kind = Kind::push;
  WorkUnit unit = {};
  std::int64_t version = 0;  ///< Updates that the parameters had which the gradient was computed on.
  double scale = 1;          ///< Of the gradient.
  double rate = 0;           ///< Learning rate.
  double sent_s = 0;         ///< By the virtual clock.

  static constexpr std::size_t kFields = 7;
  using Fields = std::array<double, kFields>;
  Fields fields() const;
  static ServerMessage from(const Fields& fields);
};

/// The answer; parameters follow where some were asked for and there is a unit.
struct ServerAnswer {
  WorkUnit unit = {.step = 0};  ///< Step 0: there is no more work.
  std::int64_t version = 0;     ///< Of the parameters that follow.
  double sent_s = 0;

  static constexpr std::size_t kFields = 4;
  using Fields = std::array<double, kFields>;
  Fields fields() const;
  static ServerAnswer from(const Fields& fields);
};

/// A rank that keeps a part of the parameters: it applies what copies push as it comes, and answers what they
/// ask. Its memory is bounded: one gradient of its part at a time, and one answer on its way for each copy.
class ParameterServer {
 public:
  struct Parts {
    comm::Group& data;  ///< The copies are its first ranks.
    comm::Queue& queue;
    SpanSink& sink;
    int copies = 1;
    Range part;         ///< Of the flat parameters, kept here.
    at::Tensor values;  ///< [n], all of them.
    comm::VirtualClock* clock = nullptr;
    /// Updates the part by a gradient [n], of which it reads the part, times `scale`.
    std::function<void(const at::Tensor& gradient, double scale, double rate, std::int64_t number)> update;
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
  void hand_out_work();
  void answer(Copy& copy, const ServerAnswer& answer, bool with_parameters);
  void arrive(const ServerMessage& message, int copy, double bytes);

  Parts parts_;
  at::Tensor gradient_;  // [n], of which the part is used
  std::vector<std::unique_ptr<Copy>> copies_;
  Dealing* dealing_ = nullptr;
  std::int64_t version_ = 0;
  std::vector<std::int64_t> late_;
};

}  // namespace dtrain::parallel
