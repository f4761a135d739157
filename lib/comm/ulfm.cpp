#include "comm/ulfm.hpp"

#include <dlfcn.h>

namespace dtrain::comm::ulfm {
namespace {

template <typename... Arguments>
int call(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(RTLD_DEFAULT, name));
  return function == nullptr ? MPI_ERR_OTHER : function(arguments...);
}

}  // namespace

bool available() { return dlsym(RTLD_DEFAULT, "MPIX_Comm_shrink") != nullptr; }

int revoke(MPI_Comm comm) { return call("MPIX_Comm_revoke", comm); }
int is_revoked(MPI_Comm comm, int* flag) { return call("MPIX_Comm_is_revoked", comm, flag); }
int shrink(MPI_Comm comm, MPI_Comm* left) { return call("MPIX_Comm_shrink", comm, left); }
int get_failed(MPI_Comm comm, MPI_Group* failed) { return call("MPIX_Comm_get_failed", comm, failed); }

}  // namespace dtrain::comm::ulfm
