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

/// As MPI_Test, of a send; an error says that its receiver is gone. Open MPI (to 5.0.11) ends the process
/// where MPI_Test has given up such a send and shared memory then tells that it was read after all ("Send
/// error after request freed"). Here it is cancelled first, which ends it without an error that could come
/// too late.
int test_send(MPI_Request* request, int* complete);

/// MPI moves only in calls to it: without this one it reports no death, and what it still owes peers, such as
/// the answer that ends their sends or what did not fit into a socket, does not leave.
void let_mpi_go_on();

/// Ranks of `comm` that MPI knows to be gone, as MPI_COMM_WORLD names them.
std::vector<int> gone(MPI_Comm comm);
/// A rank of `comm` as MPI_COMM_WORLD names it.
int first_rank_of(MPI_Comm comm, int rank);
/// Whether a rank of `comm` is gone, or another rank has revoked it because one is. MPI sees a death a moment
/// after it has failed for that reason: waits for it for `within_s` at most.
bool learns_of_loss(MPI_Comm comm, double within_s);

}  // namespace dtrain::comm::ulfm
