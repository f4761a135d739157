#pragma once

#include <mpi.h>

/// What Open MPI 5 offers to jobs whose ranks may die (User Level Failure Mitigation, MPI Forum). Looked up
/// when the program runs: Open MPI 4.1 has the same soname and none of it.
namespace dtrain::comm::ulfm {

bool available();

/// As MPIX_Comm_revoke and so on; MPI_ERR_OTHER where they are not there.
int revoke(MPI_Comm comm);
int is_revoked(MPI_Comm comm, int* flag);
int shrink(MPI_Comm comm, MPI_Comm* left);
int get_failed(MPI_Comm comm, MPI_Group* failed);

}  // namespace dtrain::comm::ulfm
