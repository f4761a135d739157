#include "thread_waits.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace dtrain::app {
namespace {

// Looks at the other thread's word, with a pause instruction of 25 to 50 ns in each. mlp, 1 rank x 2 threads
// on 2 cores with a load of 8, seconds per epoch: over 30 with OpenMP's default, 11 to 28 with 20000, 5 to 16
// with 2000, 0.3 to 0.5 with 400 and 0.2 to 1.0 with OMP_WAIT_POLICY=passive.
constexpr const char* kSpinCount = "400";

}  // namespace

bool may_have_several_threads(int threads, const std::vector<int>& cpus, const Environment& environment) {
  if (threads > 0) return threads > 1;
  const auto cores = static_cast<int>(cpus.size());
  const bool shared = environment.mpirun && cores >= ::sysconf(_SC_NPROCESSORS_ONLN);  // by all local ranks
  return cores / (shared ? std::max(environment.mpirun->local_size, 1) : 1) > 1;
}

void limit_spinning(char** argv, const Environment& environment) {
  if (environment.openmp_waits_are_set) return;
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) return;
  ::setenv("GOMP_SPINCOUNT", kSpinCount, 0);
  ::execv(program.c_str(), argv);  // returns only where it fails: then threads spin
}

}  // namespace dtrain::app
