#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "comm/group.hpp"
#include "comm/queue.hpp"
#include "secure_aggregation/primitives.hpp"

namespace dtrain::parallel {

/// Bytes that the server and clients of a round send each other, between the ranks that run them. What one
/// rank sends another in a phase is a series of letters and its end. Each wait is bounded by the queue's
/// limit: where a client computes for long, its rank sends signs of life.
///
/// No circular wait: in a phase the server sends each rank its whole series before it receives, and a rank
/// receives the whole series before it sends.
class Letters {
 public:
  Letters(comm::Group& group, comm::Queue& queue) : group_(group), queue_(queue) {}  ///< Both borrowed.

  /// Of a letter; a longer one is refused before there is memory for it.
  void expect_at_most(std::size_t bytes) { most_bytes_ = bytes; }

  /// How a series ends.
  enum class End : std::uint8_t {
    phase,   ///< The next phase follows.
    failed,  ///< The round has failed: nothing follows.
  };
  /// All of these wait until the message is on its way, and throw Error as Handle::wait().
  void send(int to, int client, secure_aggregation::View bytes);
  void send_life_sign(int to);
  void send_end(int to, End end = End::phase);

  /// Takes a letter. `client`: as its sender says.
  using Take = std::function<void(int rank, int client, secure_aggregation::View bytes)>;
  /// The whole series of one rank.
  End receive(int from, const Take& take);
  /// Those of the ranks [first, size()), each letter when it comes.
  void receive_all(int first, const Take& take);

 private:
  struct Header;
  struct Incoming;
  void send_header(int to, const Header& header);
  void await(Incoming& incoming);
  bool take_message(Incoming& incoming, const Take& take);

  comm::Group& group_;
  comm::Queue& queue_;
  std::size_t most_bytes_ = 0;
};

}  // namespace dtrain::parallel
