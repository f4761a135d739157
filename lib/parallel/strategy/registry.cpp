#include "parallel/strategy/registry.hpp"

#include "parallel/strategy/asgd.hpp"
#include "parallel/strategy/easgd.hpp"
#include "parallel/strategy/federated/fed_avg.hpp"
#include "parallel/strategy/local_sgd.hpp"
#include "parallel/strategy/synchronous.hpp"

namespace dtrain::parallel {

// Alone in its file: a test's program is linked with a list of its own.
const std::vector<StrategyEntry>& strategies() {
  static const std::vector<StrategyEntry> kStrategies = {
      synchronous(), zero1(), zero2(), zero3(), local_sgd(), easgd(), asgd(), fedavg(),
  };
  return kStrategies;
}

}  // namespace dtrain::parallel
