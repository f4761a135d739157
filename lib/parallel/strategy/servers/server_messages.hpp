#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/group.hpp"
#include "parallel/step/step.hpp"

namespace dtrain::parallel {

/// What a copy sends to a server: one header, and behind some of them numbers.
struct ServerMessage {
  enum class Kind : std::uint8_t {
    push,      ///< A gradient follows, to be applied. Servers that do not deal answer when it is.
    skip,      ///< As push, but the gradient was not finite: nothing follows, nothing is applied.
    exchange,  ///< The copy's parameters follow, to be applied; the answer has the server's from before.
    work,      ///< To the server that deals: asks for a micro-batch; the answer brings parameters with it.
    draw,    ///< As work, without parameters. A copy that has drawn the last one says itself that it is done.
    pull,    ///< Asks for parameters.
    finish,  ///< The copy has nothing more to do. After work the server that deals knows.
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

/// The ways of messages. A rank that serves and computes awaits requests and answers of the same rank at the
/// same time, and a group delivers messages of two ranks in one order: requests and answers then have a group
/// each.
class ServerLines {
 public:
  /// `data`: the ranks that compute or serve. `other`: the same ranks, perhaps in another order, for answers;
  /// or `data`. Both are borrowed.
  ServerLines(comm::Group& data, comm::Group& other);

  int rank() const { return data_.rank(); }  ///< A data rank, as all below.
  int world_rank_of(int rank) const { return data_.world_rank_of(rank); }
  comm::Handle ask(const comm::Buffer& values, int server) const { return data_.send(values, server); }
  comm::Handle hear(const comm::Buffer& values, int copy) const { return data_.receive(values, copy); }
  comm::Handle answer(const comm::Buffer& values, int copy) const { return other_.send(values, there(copy)); }
  comm::Handle await(const comm::Buffer& values, int server) const {
    return other_.receive(values, there(server));
  }

 private:
  int there(int rank) const { return in_other_.at(static_cast<std::size_t>(rank)); }
  comm::Group& data_;
  comm::Group& other_;
  std::vector<int> in_other_;  // rank there by data rank
};

}  // namespace dtrain::parallel
