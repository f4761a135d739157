#include "comm/mpi/ulfm.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <type_traits>

#include "core/clock.hpp"
#include "core/wait_until.hpp"

namespace dtrain::comm::ulfm {
namespace {

/// MPICH has functions of these names too, some of which end the process: "Assertion failed".
template <typename... Arguments>
auto find([[maybe_unused]] const char* name) {
  using Function = int (*)(Arguments...);
#ifdef OPEN_MPI
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
#else
  return Function{};
#endif
}

struct Functions {
  int (*revoke)(MPI_Comm) = find<MPI_Comm>("MPIX_Comm_revoke");
  int (*is_revoked)(MPI_Comm, int*) = find<MPI_Comm, int*>("MPIX_Comm_is_revoked");
  int (*shrink)(MPI_Comm, MPI_Comm*) = find<MPI_Comm, MPI_Comm*>("MPIX_Comm_shrink");
  int (*get_failed)(MPI_Comm, MPI_Group*) = find<MPI_Comm, MPI_Group*>("MPIX_Comm_get_failed");
};

const Functions& functions() {
  static const Functions found;
  return found;
}

template <typename... Arguments>
int call(int (*function)(Arguments...), std::type_identity_t<Arguments>... arguments) {
  return function == nullptr ? MPI_ERR_OTHER : function(arguments...);
}

std::vector<int> first_ranks_of(MPI_Group group, const std::vector<int>& places) {
  std::vector<int> ranks(places.size());
  if (places.empty()) return ranks;
  MPI_Group everyone = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &everyone);
  MPI_Group_translate_ranks(group, static_cast<int>(places.size()), places.data(), everyone, ranks.data());
  MPI_Group_free(&everyone);
  return ranks;
}

}  // namespace

bool available() { return functions().shrink != nullptr; }

int revoke(MPI_Comm comm) { return call(functions().revoke, comm); }
int is_revoked(MPI_Comm comm, int* flag) { return call(functions().is_revoked, comm, flag); }

/// Open MPI 5 numbers new communicators one after the other, those of older parents first. Where a rank dies
/// while one is made, MPI goes on waiting for it, and whatever has a newer parent waits for ever. A
/// communicator made of MPI_COMM_SELF, which is older than all but MPI_COMM_WORLD, ends that.
int shrink(MPI_Comm comm, MPI_Comm* left) {
  if (comm != MPI_COMM_WORLD) {
    MPI_Comm self = MPI_COMM_NULL;
    if (MPI_Comm_dup(MPI_COMM_SELF, &self) == MPI_SUCCESS) MPI_Comm_free(&self);
  }
  return call(functions().shrink, comm, left);
}

int get_failed(MPI_Comm comm, MPI_Group* failed) { return call(functions().get_failed, comm, failed); }

// A probe drives MPI where it finds nothing: not on a communicator that is revoked, and not where a message
// waits. No message comes on MPI_COMM_SELF.
void let_mpi_go_on() {
  int there = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);
}

std::vector<int> gone(MPI_Comm comm) {
  MPI_Group failed = MPI_GROUP_NULL;
  if (get_failed(comm, &failed) != MPI_SUCCESS) return {};
  int count = 0;
  MPI_Group_size(failed, &count);
  std::vector<int> places(static_cast<std::size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  const auto ranks = first_ranks_of(failed, places);
  MPI_Group_free(&failed);
  return ranks;
}

int first_rank_of(MPI_Comm comm, int rank) {
  MPI_Group group = MPI_GROUP_NULL;
  if (MPI_Comm_group(comm, &group) != MPI_SUCCESS) return -1;
  const auto ranks = first_ranks_of(group, {rank});
  MPI_Group_free(&group);
  return ranks.front();
}

bool is_gone(MPI_Comm comm, int rank) {
  const auto all = gone(comm);
  return !all.empty() && std::ranges::find(all, first_rank_of(comm, rank)) != all.end();
}

// A wait looks often, and the question takes as long as the look.
int test_send(MPI_Request* request, int* complete, MPI_Comm comm, int receiver) {
  static std::atomic<unsigned> looks = 0;
  if (!available()) return MPI_Test(request, complete, MPI_STATUS_IGNORE);
  MPI_Request_get_status(*request, complete, MPI_STATUS_IGNORE);
  if (*complete != 0) return MPI_Test(request, complete, MPI_STATUS_IGNORE);
  if (looks.fetch_add(1, std::memory_order_relaxed) % 16 != 0 || !is_gone(comm, receiver)) return MPI_SUCCESS;
  *request = MPI_REQUEST_NULL;
  return MPI_ERR_OTHER;
}

bool learns_of_loss(MPI_Comm comm, double within_s) {
  return wait_until(steady_s() + within_s, std::chrono::milliseconds(1), [comm] {
    int flag = 0;
    if (is_revoked(comm, &flag) == MPI_SUCCESS && flag != 0) return true;
    let_mpi_go_on();
    return !gone(comm).empty();
  });
}

}  // namespace dtrain::comm::ulfm
