#include "comm/ulfm.hpp"

#include <dlfcn.h>

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

}  // namespace

bool available() { return find("MPIX_Comm_shrink") != nullptr; }

int revoke(MPI_Comm comm) { return call("MPIX_Comm_revoke", comm); }
int is_revoked(MPI_Comm comm, int* flag) { return call("MPIX_Comm_is_revoked", comm, flag); }
int shrink(MPI_Comm comm, MPI_Comm* left) { return call("MPIX_Comm_shrink", comm, left); }
int get_failed(MPI_Comm comm, MPI_Group* failed) { return call("MPIX_Comm_get_failed", comm, failed); }

}  // namespace dtrain::comm::ulfm
