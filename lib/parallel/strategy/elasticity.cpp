#include "parallel/strategy/elasticity.hpp"

#include <fmt/format.h>

namespace dtrain::parallel {
namespace {

constexpr double kUsualPull = 0.9;  // of all copies together on the centre

}  // namespace

double elasticity_of(double given, int copies) { return given > 0 ? given : kUsualPull / copies; }

Answer can_pull(double given, int copies) {
  if (elasticity_of(given, copies) * copies <= 1.0) return {};
  return {fmt::format("{} copies with --elasticity {} would pull the centre past their mean; at most {:.4g}",
                      copies, given, 1.0 / copies)};
}

}  // namespace dtrain::parallel
