#include "comm/device/fake_nccl.hpp"

#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

struct ncclComm {
  MPI_Comm ranks = MPI_COMM_NULL;
  int looks = 3;        // until the last call on it has settled
  bool shares = false;  // with others: kernels of these run one after another
  // A split that has not settled.
  ncclComm* child = nullptr;
  ncclComm** child_at = nullptr;
};

namespace dtrain::comm {
namespace {

FakeNccl calls;

MPI_Datatype mpi_type(ncclDataType_t type) {
  return type == ncclInt32 ? MPI_INT32_T : type == ncclFloat64 ? MPI_DOUBLE : MPI_FLOAT;
}

/// The ranks that come with the same id: they meet at the one that has made it.
MPI_Comm meet(const ncclUniqueId& id, int size, int rank) {
  int maker = 0;
  int tag = 0;
  std::memcpy(&maker, id.internal, sizeof maker);
  std::memcpy(&tag, id.internal + sizeof maker, sizeof tag);
  int me = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  std::vector<int> ranks(static_cast<std::size_t>(size), me);
  if (rank == 0) {
    for (int other = 1; other < size; ++other) {
      int who[2];
      MPI_Recv(who, 2, MPI_INT, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      ranks[static_cast<std::size_t>(who[0])] = who[1];
    }
    for (int other = 1; other < size; ++other)
      MPI_Send(ranks.data(), size, MPI_INT, ranks[static_cast<std::size_t>(other)], tag, MPI_COMM_WORLD);
  } else {
    const int who[2] = {rank, me};
    MPI_Send(who, 2, MPI_INT, maker, tag, MPI_COMM_WORLD);
    MPI_Recv(ranks.data(), size, MPI_INT, maker, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group own = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, size, ranks.data(), &own);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_create_group(MPI_COMM_WORLD, own, tag, &comm);
  MPI_Group_free(&own);
  MPI_Group_free(&world);
  return comm;
}

ncclResult_t split_comm(ncclComm_t parent, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  if (config != nullptr || parent->looks > 0) return ncclInvalidUsage;
  *child = nullptr;
  ++calls.split;
  MPI_Comm ranks = MPI_COMM_NULL;
  MPI_Comm_split(parent->ranks, color == NCCL_SPLIT_NOCOLOR ? MPI_UNDEFINED : color, key, &ranks);
  parent->looks = 3;
  parent->child_at = child;
  parent->child = ranks != MPI_COMM_NULL ? new ncclComm{.ranks = ranks, .shares = parent->shares} : nullptr;
  calls.children += ranks != MPI_COMM_NULL ? 1 : 0;
  return ncclInProgress;
}

ncclResult_t allocate(void** memory, std::size_t bytes) {
  ++calls.allocated;
  *memory = std::malloc(bytes);
  return ncclSuccess;
}

ncclResult_t release(void* memory) {
  ++calls.freed;
  std::free(memory);
  return ncclSuccess;
}

ncclResult_t register_memory(ncclComm_t comm, void* memory, std::size_t /*bytes*/, void** handle) {
  if (comm->looks > 0) return ncclInvalidUsage;
  ++calls.registered;
  *handle = memory;
  return ncclSuccess;
}

ncclResult_t deregister_memory(ncclComm_t /*comm*/, void* /*handle*/) {
  ++calls.deregistered;
  return ncclSuccess;
}

}  // namespace

FakeNccl& FakeNccl::of_this_rank() { return calls; }

NcclExtras FakeNccl::extras() {
  return {.split = &split_comm,
          .allocate = &allocate,
          .free = &release,
          .register_memory = &register_memory,
          .deregister_memory = &deregister_memory};
}

}  // namespace dtrain::comm

using dtrain::comm::calls;

extern "C" {

const char* ncclGetErrorString(ncclResult_t /*code*/) { return "fake error"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  int maker = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &maker);
  const int tag = 100 + 50 * maker + ++calls.ids;
  std::memcpy(id->internal, &maker, sizeof maker);
  std::memcpy(id->internal + sizeof maker, &tag, sizeof tag);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *comm = new ncclComm{.ranks = dtrain::comm::meet(id, size, rank), .shares = config->splitShare == 1};
  ++calls.made;
  calls.sharing += (*comm)->shares ? 1 : 0;
  return config->blocking == 0 ? ncclInProgress : ncclInvalidUsage;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (comm->looks > 0 && --comm->looks == 0 && comm->child != nullptr) {
    comm->child->looks = 0;
    *comm->child_at = std::exchange(comm->child, nullptr);
  }
  *state = comm->looks > 0 ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t /*comm*/) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ++calls.destroyed;
  MPI_Comm_free(&comm->ranks);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) { return ncclCommDestroy(comm); }
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t /*stream*/) {
  const MPI_Op how = op == ncclSum ? MPI_SUM : op == ncclMax ? MPI_MAX : MPI_MIN;
  MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, static_cast<int>(count), dtrain::comm::mpi_type(type),
                how, comm->ranks);
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t /*stream*/) {
  MPI_Send(from, static_cast<int>(count), dtrain::comm::mpi_type(type), peer, 0, comm->ranks);
  calls.messages_behind_others += comm->shares ? 1 : 0;
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t /*stream*/) {
  int is_there = 0;
  for (int look = 0; look < 100 && is_there == 0; ++look) {
    MPI_Iprobe(peer, 0, comm->ranks, &is_there, MPI_STATUS_IGNORE);
    if (is_there == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  calls.receives_that_wait += is_there == 0 ? 1 : 0;
  MPI_Recv(to, static_cast<int>(count), dtrain::comm::mpi_type(type), peer, 0, comm->ranks,
           MPI_STATUS_IGNORE);
  return ncclSuccess;
}

// Not called by the test.
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t) {
  return ncclInvalidUsage;
}
ncclResult_t ncclReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
                        cudaStream_t) {
  return ncclInvalidUsage;
}
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return ncclInvalidUsage;
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclInvalidUsage;
}

const char* cudaGetErrorString(cudaError_t /*code*/) { return "fake error"; }
cudaError_t cudaSetDevice(int /*device*/) { return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;  // as CUDA's: a smaller number comes before
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  *stream = nullptr;
  auto& of_rank = dtrain::comm::FakeNccl::of_this_rank();
  if (flags == cudaStreamNonBlocking && priority == -5) ++of_rank.urgent_streams;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t /*stream*/, cudaEvent_t /*event*/, unsigned /*flags*/) {
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = nullptr;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t /*event*/) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t /*event*/, cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t /*event*/) {
  auto& looks = dtrain::comm::FakeNccl::of_this_rank().busy_looks;
  if (looks == 0) return cudaSuccess;
  --looks;
  return cudaErrorNotReady;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}

}  // extern "C"
