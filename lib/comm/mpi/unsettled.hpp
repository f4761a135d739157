#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>

namespace dtrain::comm {

/// What keeps memory that MPI was given. Empty: nothing does, so that MPI may be given a copy only.
using Owner = std::shared_ptr<const void>;

/// Gives up a request that may not be complete, after a failure. MPI may go on reading or writing its memory,
/// [data, data + bytes), until the request is settled: `owner` is kept until then, for ever if need be.
void abandon(MPI_Request& request, const void* data, std::size_t bytes, Owner owner) noexcept;
struct Receiver {
  MPI_Comm comm;
  int rank;
};

/// The same of a send, which is also settled once its receiver is gone.
void abandon_send(MPI_Request& request, Receiver receiver, const void* data, std::size_t bytes,
                  Owner owner) noexcept;

/// Whether MPI may still read or write there, for a request that was given up.
bool in_use(const void* data, std::size_t bytes) noexcept;

}  // namespace dtrain::comm
