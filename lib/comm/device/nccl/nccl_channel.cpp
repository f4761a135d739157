#include "comm/device/nccl/nccl_channel.hpp"

#include <fmt/core.h>

#include <exception>
#include <span>
#include <thread>

#include "comm/device/nccl/cuda_check.hpp"
#include "comm/mpi/mpi_check.hpp"
#include "comm/watch/waiting.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

constexpr double kLongestFinish_s = 10;

}  // namespace

NcclChannel::NcclChannel(const Communicator& ranks, int device, double timeout_s, Splits splits)
    : device_(device) {
  check_cuda(cudaSetDevice(device), fmt::format("cudaSetDevice({})", device));
  ncclUniqueId id{};
  if (ranks.rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  ranks.broadcast_bytes(std::as_writable_bytes(std::span(&id, 1)), 0);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (splits == Splits::shared) config.splitShare = 1;
  set_up(ranks, [&] {
    check_nccl(ncclCommInitRankConfig(&comm_, ranks.size(), id, ranks.rank(), &config),
               "ncclCommInitRankConfig");
    await_settled(ranks, timeout_s, "ncclCommInitRankConfig");
    make_stream();
  });
}

NcclChannel::NcclChannel(ncclComm_t comm, int device) : device_(device), comm_(comm) {
  try {
    make_stream();
  } catch (...) {
    abort();
    throw;
  }
}

/// Of the highest priority: NCCL's few blocks get the next free multiprocessors, before what backward still
/// has to begin, and the stream has none of the compute stream's hardware queues.
void NcclChannel::make_stream() {
  int lowest = 0;
  int highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest),
             "cudaStreamCreateWithPriority");
}

std::unique_ptr<NcclChannel> NcclChannel::split(NcclExtras::Split call, const Communicator& ranks, int color,
                                                int key, double timeout_s) {
  check_cuda(cudaSetDevice(device_), "cudaSetDevice");
  ncclComm_t child = nullptr;
  set_up(ranks, [&] {
    check_nccl(call(comm_, color, key, &child, nullptr), "ncclCommSplit");  // null: with the config of this
    await_settled(ranks, timeout_s, "ncclCommSplit");  // the child is there when this one has settled
    require(child != nullptr, "gave no communicator",
            {.subject = "ncclCommSplit", .advice = "leave out --nccl-shared"});
  });
  return std::unique_ptr<NcclChannel>(new NcclChannel(child, device_));
}

void* NcclChannel::register_memory(const NcclExtras& extras, void* memory, std::size_t bytes) {
  void* registered = nullptr;
  check_nccl(extras.register_memory(comm_, memory, bytes, &registered),
             fmt::format("ncclCommRegister of {} bytes", bytes));
  return registered;
}

void NcclChannel::deregister_memory(const NcclExtras& extras, void* registered) noexcept {
  if (comm_ != nullptr && registered != nullptr) extras.deregister_memory(comm_, registered);
}

NcclChannel::~NcclChannel() {
  if (std::uncaught_exceptions() > 0 || !finish()) abort();
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

/// In order, with the peers; false where one does not come to it, and where there is nothing left to finish.
bool NcclChannel::finish() noexcept {
  if (comm_ == nullptr || ncclCommFinalize(comm_) == ncclInvalidArgument) return false;
  const double limit_s = steady_s() + kLongestFinish_s;
  ncclResult_t state = ncclInProgress;
  while (ncclCommGetAsyncError(comm_, &state) == ncclSuccess && state == ncclInProgress) {
    if (steady_s() > limit_s) return false;
    std::this_thread::yield();
  }
  if (state != ncclSuccess) return false;
  ncclCommDestroy(comm_);
  comm_ = nullptr;
  return true;
}

/// Whether the last call on the communicator has been taken over by the GPU.
bool NcclChannel::settled() {
  ncclResult_t state = ncclSuccess;
  check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
  check_nccl(state, "NCCL");
  return state != ncclInProgress;
}

/// A step of the set-up; where it fails nothing of the communicator stays.
void NcclChannel::set_up(const Communicator& ranks, const std::function<void()>& step) {
  try {
    step();
  } catch (const LibraryError&) {
    abort();
    ranks.check_losses();  // whatever NCCL says
    throw;
  } catch (...) {
    abort();
    throw;
  }
}

void NcclChannel::await_settled(const Communicator& ranks, double timeout_s, const char* what) {
  Waiting waiting(timeout_s);
  LossWatch losses(ranks.handle(), "NCCL's set-up");
  while (!settled()) {
    losses.look();
    require(waiting.pause(), fmt::format("not complete after {} s", timeout_s),
            {.subject = what,
             .advice = "check that all ranks reach one another, with NCCL_DEBUG=INFO",
             .code = ExitCode::lost_rank});
  }
}

void NcclChannel::connect(const Communicator& ranks, const Call& call, double timeout_s) {
  set_up(ranks, [&] {
    check_nccl(call(comm_, stream_), "NCCL's first call");
    await_settled(ranks, timeout_s, "NCCL's first call");
  });
}

bool NcclChannel::issue(DeviceCall& turn, const Call& call) {
  if (!turn.is_turn()) return false;
  require(comm_ != nullptr, "the communicator was aborted",
          {.subject = "NCCL", .advice = "see the earlier message", .code = ExitCode::lost_rank});
  if (!called_) {
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");  // the driving thread may be another than the maker
    check_nccl(call(comm_, stream_), "NCCL call");
    called_ = true;
  }
  if (!settled()) return false;
  called_ = false;
  turn.given();
  return true;
}

void NcclChannel::check_peers() {
  if (comm_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked == ncclSuccess && (state == ncclSuccess || state == ncclInProgress)) return;
  abort();  // otherwise kernels of ours wait for the peer for ever
  check_nccl(asked, "ncclCommGetAsyncError");
  check_nccl(state, "NCCL");
}

void NcclChannel::abort() noexcept {
  if (comm_ != nullptr) ncclCommAbort(comm_);
  comm_ = nullptr;
}

}  // namespace dtrain::comm
