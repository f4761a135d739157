#pragma once

#include <vector>

#include "environment.hpp"

namespace dtrain::app {

/// Whether a rank that was asked for so many compute threads (0: as the affinity mask `cpus` has it) may have
/// several.
bool may_have_several_threads(int threads, const std::vector<int>& cpus, const Environment& environment);

/// Lets compute threads that wait for one another spin for some 20 microseconds and then sleep. OpenMP's
/// library would let them spin for milliseconds: where another program has the core of one of them, the rest
/// keep theirs for nothing (1 rank x 2 threads, mlp, beside other programs: 9 to 28 s per epoch, one thread
/// 1.1). The library reads its settings when it is loaded, before main: so the program is started anew, once,
/// with the setting in its environment. Does nothing where the user has set GOMP_SPINCOUNT or
/// OMP_WAIT_POLICY.
void limit_spinning(char** argv, const Environment& environment);

}  // namespace dtrain::app
