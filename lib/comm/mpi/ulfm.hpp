#pragma once

#include <mpi.h>

#include <vector>

/// What Open MPI 5 offers to jobs whose ranks may die (User Level Failure Mitigation, MPI Forum). Looked up
/// when the program runs: Open MPI 4.1 has the same soname and none of it.
namespace dtrain::comm::ulfm {

bool available();

/// As MPIX_Comm_revoke and so on; MPI_ERR_OTHER where they are not there.
int revoke(MPI_Comm comm);
int is_revoked(MPI_Comm comm, int* flag);
int shrink(MPI_Comm comm, MPI_Comm* left);
int get_failed(MPI_Comm comm, MPI_Group* failed);

/// MPI moves only in calls to it: without this one it reports no death, and what it still owes peers, such as
/// the answer that ends their sends or what did not fit into a socket, does not leave.
void let_mpi_go_on();

/// Ranks of `comm` that MPI knows to be gone, as MPI_COMM_WORLD names them.
std::vector<int> gone(MPI_Comm comm);
/// A rank of `comm` as MPI_COMM_WORLD names it; negative where `comm` has been freed.
int first_rank_of(MPI_Comm comm, int rank);
/// Whether MPI knows that a rank of `comm` is gone.
bool is_gone(MPI_Comm comm, int rank);
/// As MPI_Test, of a send; an error says that its receiver, a rank of `comm`, is gone. Such a request is left
/// to MPI as it is: Open MPI 5 ends the process if MPI_Test has given it up, and shared memory tells
/// afterwards that it was read ("Send error after request freed"); if it was cancelled, a fragment is freed
/// twice.
int test_send(MPI_Request* request, int* complete, MPI_Comm comm, int receiver);
/// Whether a rank of `comm` is gone, or another rank has revoked it because one is. MPI sees a death a moment
/// after it has failed for that reason: waits for it for `within_s` at most.
bool learns_of_loss(MPI_Comm comm, double within_s);

}  // namespace dtrain::comm::ulfm
