#include "comm/mpi/ulfm.hpp"

#include <dlfcn.h>

#include <chrono>
#include <numeric>

#include "core/clock.hpp"
#include "core/wait_until.hpp"

namespace dtrain::comm::ulfm {
namespace {

/// MPICH has functions of these names too, some of which end the process: "Assertion failed".
void* find([[maybe_unused]] const char* name) {
#ifdef OPEN_MPI
  return dlsym(RTLD_DEFAULT, name);
#else
  return nullptr;
#endif
}

template <typename... Arguments>
int call(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(find(name));
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

bool available() { return find("MPIX_Comm_shrink") != nullptr; }

int revoke(MPI_Comm comm) { return call("MPIX_Comm_revoke", comm); }
int is_revoked(MPI_Comm comm, int* flag) { return call("MPIX_Comm_is_revoked", comm, flag); }
int shrink(MPI_Comm comm, MPI_Comm* left) { return call("MPIX_Comm_shrink", comm, left); }
int get_failed(MPI_Comm comm, MPI_Group* failed) { return call("MPIX_Comm_get_failed", comm, failed); }

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
  MPI_Comm_group(comm, &group);
  const auto ranks = first_ranks_of(group, {rank});
  MPI_Group_free(&group);
  return ranks.front();
}

// Without the probe MPI reported nothing. Probing a communicator that another rank has revoked drives
// nothing; that it is revoked says enough.
bool learns_of_loss(MPI_Comm comm, double within_s) {
  return wait_until(steady_s() + within_s, std::chrono::milliseconds(1), [comm] {
    int flag = 0;
    if (is_revoked(comm, &flag) == MPI_SUCCESS && flag != 0) return true;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE);
    return !gone(comm).empty();
  });
}

}  // namespace dtrain::comm::ulfm
