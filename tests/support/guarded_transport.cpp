// What carries messages between the guarded devices of several ranks (guarded_device.hpp), as NCCL does
// between GPUs: whatever training hands over to it must lie in a device's memory, and nobody else may have
// touched it.
#include <mpi.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/device/device_transport.hpp"
#include "comm/operation.hpp"
#include "core/error.hpp"
#include "core/slice.hpp"
#include "parallel/device/rank_device.hpp"
#include "support/guarded_device.hpp"

namespace dtrain {
namespace {

using comm::Buffer;
using comm::Handle;

MPI_Datatype mpi_type(comm::DataType type) {
  switch (type) {
    case comm::DataType::float32:
      return MPI_FLOAT;
    case comm::DataType::float64:
      return MPI_DOUBLE;
    case comm::DataType::int32:
      return MPI_INT32_T;
    case comm::DataType::int64:
      return MPI_INT64_T;
    default:
      throw Error("no elements of 16 bits", {.subject = "guarded transport"});
  }
}

/// On copies in the CPU's memory: from the device when it is submitted, into it when it is complete.
class CopiedOperation final : public comm::Operation {
 public:
  using Start = std::function<void(void* in, void* out, MPI_Request* request)>;

  CopiedOperation(const Buffer& in, const Buffer& out, const Start& start)
      : out_(out), sent_(in.bytes()), received_(out.bytes()) {
    if (!sent_.empty()) guarded_copy(sent_.data(), in.data, sent_.size());
    start(sent_.data(), received_.data(), &request_);
    bytes_sent_ = static_cast<std::int64_t>(sent_.size());
    bytes_received_ = static_cast<std::int64_t>(received_.size());
  }

  bool advance() override {
    int done = 0;
    MPI_Test(&request_, &done, MPI_STATUS_IGNORE);
    if (done == 0) return false;
    if (!received_.empty()) guarded_copy(out_.data, received_.data(), received_.size());
    return true;
  }
  std::string_view name() const override { return "guarded"; }

 private:
  Buffer out_;
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

class GuardedBuffer final : public comm::SharedBuffer {
 public:
  explicit GuardedBuffer(std::size_t bytes) : bytes_(bytes), data_(guarded_allocate(bytes)) {}
  ~GuardedBuffer() override { guarded_release(data_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  void* data() override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_;
};

class GuardedGroup final : public comm::Group {
 public:
  explicit GuardedGroup(const comm::DeviceGroupRequest& request)
      : name_(request.name + " on guarded devices"),
        world_ranks_(request.world_ranks),
        messages_(request.messages),
        registers_(request.common != nullptr),
        ranks_(comm::Communicator::duplicate(request.ranks->handle())),
        queue_(*request.queue) {}

  const std::string& name() const override { return name_; }
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  int world_rank_of(int rank) const override { return world_ranks_.at(static_cast<std::size_t>(rank)); }
  std::unique_ptr<comm::SharedBuffer> allocate(std::size_t bytes) override {
    return std::make_unique<GuardedBuffer>(bytes);
  }
  bool registers_memory() const override { return registers_; }  // as NCCL does with --nccl-shared

  Handle all_reduce(Buffer values, comm::ReduceOp op, comm::Algorithm /*algorithm*/) override {
    const auto how = op == comm::ReduceOp::sum ? MPI_SUM : op == comm::ReduceOp::max ? MPI_MAX : MPI_MIN;
    return submit(values, values, [&](void* in, void* out, MPI_Request* request) {
      MPI_Iallreduce(in, out, static_cast<int>(values.count), mpi_type(values.type), how, ranks_.handle(),
                     request);
    });
  }
  Handle reduce_scatter(Buffer input, Buffer output, comm::ReduceOp /*sum*/) override {
    cut(input);
    return submit(input, output, [&](void* in, void* out, MPI_Request* request) {
      MPI_Ireduce_scatter(in, out, counts_.data(), mpi_type(input.type), MPI_SUM, ranks_.handle(), request);
    });
  }
  Handle all_gather(Buffer input, Buffer output) override {
    cut(output);
    return submit(input, output, [&](void* in, void* out, MPI_Request* request) {
      MPI_Iallgatherv(in, static_cast<int>(input.count), mpi_type(input.type), out, counts_.data(),
                      begins_.data(), mpi_type(input.type), ranks_.handle(), request);
    });
  }
  Handle send(Buffer values, int to) override {
    require(messages_, "carries no messages", {.subject = name_});
    return submit(values, {}, [&](void* in, void* /*out*/, MPI_Request* request) {
      MPI_Isend(in, static_cast<int>(values.count), mpi_type(values.type), to, 0, ranks_.handle(), request);
    });
  }
  Handle receive(Buffer values, int from) override {
    require(messages_, "carries no messages", {.subject = name_});
    return submit({}, values, [&](void* /*in*/, void* out, MPI_Request* request) {
      MPI_Irecv(out, static_cast<int>(values.count), mpi_type(values.type), from, 0, ranks_.handle(),
                request);
    });
  }
  Handle all_to_all(Buffer input, Buffer output) override {
    const auto each = static_cast<int>(input.count) / size();
    return submit(input, output, [&](void* in, void* out, MPI_Request* request) {
      MPI_Ialltoall(in, each, mpi_type(input.type), out, each, mpi_type(input.type), ranks_.handle(),
                    request);
    });
  }
  Handle broadcast(Buffer values, int root) override {
    return submit(values, values, [&](void* in, void* out, MPI_Request* request) {
      std::memcpy(out, in, values.bytes());
      MPI_Ibcast(out, static_cast<int>(values.count), mpi_type(values.type), root, ranks_.handle(), request);
    });
  }
  Handle barrier() override { refuse("barrier"); }

 private:
  [[noreturn]] void refuse(const char* what) const {
    throw Error(std::string("training had no use for ") + what, {.subject = name_});
  }
  Handle submit(const Buffer& in, const Buffer& out, const CopiedOperation::Start& start) {
    return queue_.submit(std::make_unique<CopiedOperation>(in, out, start));
  }
  /// As part_of does.
  void cut(const Buffer& whole) {
    counts_.clear();
    begins_.clear();
    for (int rank = 0; rank < size(); ++rank) {
      const Range part = part_of(static_cast<std::int64_t>(whole.count), rank, size());
      counts_.push_back(static_cast<int>(part.size()));
      begins_.push_back(static_cast<int>(part.begin));
    }
  }

  std::string name_;
  std::vector<int> world_ranks_;
  bool messages_;
  bool registers_;
  comm::Communicator ranks_;
  comm::Queue& queue_;
  std::vector<int> counts_;  // of the collective under way
  std::vector<int> begins_;
};

class GuardedTransport final : public comm::DeviceTransport {
 public:
  std::string description() const override { return "guarded devices"; }
  bool lets_ranks_share_devices() const override { return true; }
  std::unique_ptr<comm::Group> make_group(const comm::DeviceGroupRequest& request) const override {
    return std::make_unique<GuardedGroup>(request);
  }
};

[[maybe_unused]] const bool kIsUsed = [] {
  static const GuardedTransport transport;
  parallel::use_extension_transport(&transport);
  return true;
}();

}  // namespace
}  // namespace dtrain
