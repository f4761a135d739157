#pragma once

#include "parallel/strategy/abilities.hpp"

namespace dtrain::parallel {

/// What moves between a copy and the centre in an exchange. `given`: in (0, 1); 0: what all copies together
/// usually pull with, over `copies`. Source: Zhang et al. 2015, beta.
double elasticity_of(double given, int copies);

/// Whether so many copies can pull at a centre with it.
Answer can_pull(double given, int copies);

}  // namespace dtrain::parallel
