#pragma once

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "comm/mpi/communicator.hpp"
#include "comm/watch/flight_recorder.hpp"

namespace dtrain::comm {

/// Asks the ranks of other nodes what keeps an operation from being complete, and answers for this node,
/// while the compute threads wait or compute: each rank has a thread that looks for questions ten times a
/// second. One answer per node is enough, since the ranks of a node can read one another's recorders.
class Inquiry {
 public:
  /// `first_ranks`, `nodes`: how each rank of `world` is named, and where it is. Both `world` and `recorder`
  /// are borrowed. Collective over `world`.
  Inquiry(const Communicator& world, const std::vector<int>& first_ranks, std::vector<int> nodes,
          const FlightRecorder& recorder);
  /// Where an error ends the rank while the others are there, answers a moment longer: ranks whose limits end
  /// together ask each other, and one that is gone looks like a link that is down.
  ~Inquiry();
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;

  /// A clause on each rank of the other nodes that has not done its part in `overdue`, and on each node that
  /// does not answer. Takes at most three seconds.
  std::vector<std::string> ask(const Label& overdue, double limit_s) const;

 private:
  void answer() const;
  void answer_one(int asker) const;

  Communicator world_;
  std::vector<int> nodes_;      // by rank
  std::map<int, int> node_of_;  // by name
  const FlightRecorder& recorder_;
  const int exceptions_;  // in flight when this was made
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace dtrain::comm
