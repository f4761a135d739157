#include "comm/device/nccl/nccl_group.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "comm/device/nccl/cuda_check.hpp"
#include "comm/device/nccl/cuda_event.hpp"
#include "comm/device/nccl/nccl_memory.hpp"
#include "comm/device/nccl/notice.hpp"
#include "comm/group_arguments.hpp"
#include "comm/operation.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

/// A communicator of all ranks of a job, of which those of its groups are parts.
class NcclRoot final : public DeviceRoot {
 public:
  explicit NcclRoot(const DeviceGroupRequest& request)
      : channel(request.common->job, request.device, request.timeout_s, NcclChannel::Splits::shared) {}
  NcclChannel channel;
};

/// Of a ring of so many ranks the pairs of neighbours, in rounds: in each a rank is in one pair at most, so
/// that all pairs of a round meet at once.
std::vector<std::vector<std::pair<int, int>>> rounds_of_neighbours(int size) {
  std::vector<std::vector<std::pair<int, int>>> rounds(2);
  for (int a = 0; a + 1 < size; ++a) rounds[static_cast<std::size_t>(a % 2)].emplace_back(a, a + 1);
  if (size > 2) {
    if (size % 2 != 0) rounds.emplace_back();  // the last one is with its other neighbour in the second round
    rounds.back().emplace_back(size - 1, 0);
  }
  std::erase_if(rounds, [](const auto& pairs) { return pairs.empty(); });
  return rounds;
}

ncclDataType_t nccl_type(DataType type) {
  switch (type) {
    case DataType::float32:
      return ncclFloat32;
    case DataType::float64:
      return ncclFloat64;
    case DataType::bfloat16:
      return ncclBfloat16;
    case DataType::float16:
      return ncclFloat16;
    case DataType::int32:
      return ncclInt32;
    case DataType::int64:
      return ncclInt64;
  }
  return ncclFloat32;
}

ncclRedOp_t nccl_op(ReduceOp op) {
  if (op == ReduceOp::sum) return ncclSum;
  return op == ReduceOp::max ? ncclMax : ncclMin;
}

/// The first result that is neither success nor "in progress".
ncclResult_t worst(ncclResult_t first, ncclResult_t second) {
  return first == ncclSuccess || first == ncclInProgress ? second : first;
}

/// The rank that a message comes from, or goes to.
struct Peer {
  const Communicator* pair;
  int rank;  ///< In the pair.
  bool receives;
};

/// Issues its call when its turn has come, then polls an event behind it: never blocks on the stream, where
/// a dead peer would keep it for ever. What is sent is given to the GPU when it has been computed, and then
/// the peer is told, which gives its receive to its own: see DeviceCall.
class NcclOperation final : public Operation {
 public:
  /// `peer`: nothing for a collective.
  NcclOperation(const Label& label, NcclChannel& channel, std::unique_ptr<DeviceCall> turn,
                const std::optional<Peer>& peer, cudaStream_t compute, NcclChannel::Call call,
                std::int64_t sent, std::int64_t received, ByteCount* by_rank)
      : label_(label),
        channel_(channel),
        peer_(peer),
        compute_(compute),
        call_(std::move(call)),
        turn_(std::move(turn)),
        by_rank_(by_rank) {
    bytes_sent_ = sent;
    bytes_received_ = received;
    ready_.record(compute_);
  }
  NcclOperation(const NcclOperation&) = delete;
  NcclOperation& operator=(const NcclOperation&) = delete;

  /// Before its time: the queue has failed, or is not wanted any more. The compute thread may wait for the
  /// GPU, and the GPU for a peer that does not come.
  ~NcclOperation() override {
    if (called_ && !complete_) channel_.abort();
  }

  bool advance() override {
    if (!issued_) {
      if (!may_go()) {
        channel_.check_peers();
        return false;
      }
      issued_ = channel_.issue(*turn_, [this](ncclComm_t comm, cudaStream_t stream) {
        called_ = true;
        ready_.make_wait(stream);
        return call_(comm, stream);
      });
      if (!issued_) return false;
      done_.record(channel_.stream());
      if (peer_ && !peer_->receives) notice_ = Notice::to(*peer_->pair, peer_->rank);
    }
    complete_ = notice_.test() && done_.passed();
    if (complete_) {
      turn_->ended();
      if (by_rank_ != nullptr) by_rank_->add(bytes_sent_, bytes_received_);
      return true;
    }
    channel_.check_peers();
    return false;
  }

  Follow follow() override {
    if (!issued_) return Follow::not_yet;
    done_.make_wait(compute_);
    return Follow::ordered;
  }

  std::string_view name() const override { return label_.operation; }
  std::string describe() const override {
    const std::string behind = turn_->behind();
    return label_.text() + (behind.empty() ? " (NCCL)" : " (NCCL, behind a call of " + behind + ")");
  }
  const Label* label() const override { return &label_; }

 private:
  /// Whether a message is there to be sent, or is with the peer's GPU.
  bool may_go() {
    if (!peer_ || may_go_) return true;
    if (!turn_->is_next()) return false;
    if (peer_->receives && !awaits_notice_) {
      notice_ = Notice::from(*peer_->pair, peer_->rank);
      awaits_notice_ = true;
    }
    may_go_ = peer_->receives ? notice_.test() : ready_.passed();
    return may_go_;
  }

  Label label_;
  NcclChannel& channel_;
  std::optional<Peer> peer_;
  Notice notice_;
  bool awaits_notice_ = false;
  bool may_go_ = false;
  cudaStream_t compute_;
  NcclChannel::Call call_;
  std::unique_ptr<DeviceCall> turn_;
  ByteCount* by_rank_;  // null: not counted
  CudaEvent ready_;
  CudaEvent done_;
  bool called_ = false;
  bool issued_ = false;
  bool complete_ = false;
};

}  // namespace

NcclGroup::NcclGroup(const DeviceGroupRequest& request, const NcclExtras& extras)
    : name_(request.name + " on GPUs"),
      rank_(request.ranks->rank()),
      world_ranks_(request.world_ranks),
      id_(group_id(name_, world_ranks_)),
      queue_(*request.queue),
      order_(request.order != nullptr ? request.order : std::make_shared<DeviceOrder>(request.timeout_s)),
      compute_(request.stream != nullptr ? static_cast<cudaStream_t>(request.stream) : cudaStreamLegacy),
      extras_(request.common != nullptr ? extras : NcclExtras()),
      collectives_(make_collectives(request)),
      token_(device_memory(sizeof(std::int32_t))),
      traffic_(request.traffic),
      bytes_with_all_(request.bytes_with_all) {
  void* const token = token_->data();
  collectives_->connect(
      *request.ranks,
      [token](ncclComm_t comm, cudaStream_t stream) {
        return ncclAllReduce(token, token, 1, ncclInt32, ncclMax, comm, stream);
      },
      request.timeout_s);
  if (!request.messages) return;
  for (const auto& pairs : rounds_of_neighbours(size())) meet(pairs, request);
}

/// Of all ranks of the group one communicator, or a part of the job's.
std::shared_ptr<NcclChannel> NcclGroup::make_collectives(const DeviceGroupRequest& request) const {
  if (extras_.split == nullptr || request.common->job.size() == size())
    return std::make_shared<NcclChannel>(*request.ranks, request.device, request.timeout_s);
  auto& root = request.common->root;
  if (root == nullptr) root = std::make_shared<NcclRoot>(request);
  return static_cast<NcclRoot&>(*root).channel.split(extras_.split, request.common->job,
                                                     request.common->color, rank_, request.timeout_s);
}

/// The ranks of each pair make what they send each other through; the set-up is collective. Never split from
/// another communicator: those that share what they have run their kernels one after another
/// (ncclLaunchPrepare of NCCL's enqueue.cc), and a receive that waits would keep the answer that the peer
/// waits for.
void NcclGroup::meet(const std::vector<Pair>& pairs, const DeviceGroupRequest& request) {
  const auto own = std::ranges::find_if(
      pairs, [this](const Pair& pair) { return pair.first == rank_ || pair.second == rank_; });
  const bool takes_part = own != pairs.end();
  const int color = takes_part ? own->first : size() + rank_;
  Communicator with_peer = request.ranks->split(color, rank_);
  if (!takes_part) return;
  const Communicator& pair = *pairs_.emplace_back(std::make_unique<Communicator>(std::move(with_peer)));
  const auto [a, b] = *own;
  const auto make = [&] {
    return channels_.emplace_back(std::make_unique<NcclChannel>(pair, request.device, request.timeout_s))
        .get();
  };
  NcclChannel* const there = make();  // from a to b
  NcclChannel* const back = make();
  const int its_rank = pair.size() - 1 - pair.rank();
  const bool is_a = rank_ == a;
  for (NcclChannel* const channel : {there, back}) {
    const bool sends = (channel == there) == is_a;
    channel->connect(
        pair,
        [sends, its_rank, token = token_->data()](ncclComm_t comm, cudaStream_t stream) {
          return sends ? ncclSend(token, 1, ncclInt32, its_rank, comm, stream)
                       : ncclRecv(token, 1, ncclInt32, its_rank, comm, stream);
        },
        request.timeout_s);
  }
  neighbours_[is_a ? b : a] =
      is_a ? Neighbour{there, back, &pair, its_rank} : Neighbour{back, there, &pair, its_rank};
}

/// A communicator's end may wait for the peer's: all ranks end theirs in one order, against that of making.
NcclGroup::~NcclGroup() {
  while (!channels_.empty()) channels_.pop_back();
}

NcclGroup::Neighbour& NcclGroup::neighbour(int rank) {
  const auto place = neighbours_.find(rank);
  require(place != neighbours_.end(),
          fmt::format("carries no messages between rank {} and rank {}", rank_, rank),
          {.subject = "group " + name_, .advice = "use --comm-backend mpi"});
  return place->second;
}

Label NcclGroup::label(std::string_view operation, const Buffer& values, int peer) {
  return {.operation = operation,
          .group = name_,
          .number = peer < 0 ? ++operations_ : ++messages_,
          .group_id = id_,
          .members = &world_ranks_,
          .peer = peer < 0 ? -1 : world_rank_of(peer),
          .count = values.count,
          .type = values.type};
}

std::unique_ptr<SharedBuffer> NcclGroup::allocate(std::size_t bytes) {
  return extras_.registers() ? registered_memory(bytes, extras_, collectives_, compute_)
                             : device_memory(bytes);
}

Handle NcclGroup::submit(const Label& label, NcclChannel& channel, NcclChannel::Call call, std::int64_t sent,
                         std::int64_t received, const Neighbour* neighbour) {
  check_cuda(cudaSetDevice(channel.device()), "cudaSetDevice");
  ByteCount* const by_rank =
      label.peer < 0 || traffic_ == nullptr ? bytes_with_all_ : &traffic_->with(label.peer);
  auto turn = label.peer < 0 ? std::make_unique<DeviceCall>(order_, std::string(label.group))
                             : std::make_unique<DeviceCall>(order_, std::string(label.group), channel.way());
  std::optional<Peer> peer;
  if (neighbour != nullptr) peer = Peer{neighbour->pair, neighbour->rank_in_pair, &channel == neighbour->in};
  return queue_.submit(std::make_unique<NcclOperation>(label, channel, std::move(turn), peer, compute_,
                                                       std::move(call), sent, received, by_rank));
}

Handle NcclGroup::all_reduce(Buffer values, ReduceOp op, Algorithm) {
  check_arguments(*this, "all_reduce", values);
  const std::int64_t moved = 2 * static_cast<std::int64_t>(values.bytes()) * (size() - 1) / size();
  return submit(
      label("all_reduce", values), *collectives_,
      [values, op](ncclComm_t comm, cudaStream_t stream) {
        return ncclAllReduce(values.data, values.data, values.count, nccl_type(values.type), nccl_op(op),
                             comm, stream);
      },
      moved, moved);
}

Handle NcclGroup::reduce_scatter(Buffer input, Buffer output, ReduceOp op) {
  check_arguments(*this, "reduce_scatter", input, output);
  require_part(*this, "reduce_scatter", input, output);
  const auto moved = static_cast<std::int64_t>(input.bytes() - output.bytes());
  const bool even = input.count % static_cast<std::size_t>(size()) == 0;
  return submit(
      label("reduce_scatter", input), *collectives_,
      [this, input, output, op, even](ncclComm_t comm, cudaStream_t stream) {
        const ncclDataType_t type = nccl_type(input.type);
        if (even)
          return ncclReduceScatter(input.data, output.data, output.count, type, nccl_op(op), comm, stream);
        ncclResult_t result = ncclGroupStart();  // NCCL's own wants equal parts
        const std::vector<Buffer> parts = parts_of(input, size());
        for (int root = 0; root < size(); ++root) {
          const Buffer& part = parts[static_cast<std::size_t>(root)];
          result = worst(
              result, ncclReduce(part.data, output.data, part.count, type, nccl_op(op), root, comm, stream));
        }
        return worst(result, ncclGroupEnd());
      },
      moved, moved);
}

Handle NcclGroup::all_gather(Buffer input, Buffer output) {
  check_arguments(*this, "all_gather", input, output);
  require_part(*this, "all_gather", output, input);
  const auto received = static_cast<std::int64_t>(output.bytes() - input.bytes());
  const bool even = output.count % static_cast<std::size_t>(size()) == 0;
  return submit(
      label("all_gather", output), *collectives_,
      [this, input, output, even](ncclComm_t comm, cudaStream_t stream) {
        const ncclDataType_t type = nccl_type(input.type);
        if (even) return ncclAllGather(input.data, output.data, input.count, type, comm, stream);
        ncclResult_t result = ncclGroupStart();
        const std::vector<Buffer> parts = parts_of(output, size());
        for (int root = 0; root < size(); ++root) {
          const Buffer& part = parts[static_cast<std::size_t>(root)];
          const void* const from = root == rank() ? input.data : part.data;
          result = worst(result, ncclBroadcast(from, part.data, part.count, type, root, comm, stream));
        }
        return worst(result, ncclGroupEnd());
      },
      received, received);
}

Handle NcclGroup::all_to_all(Buffer input, Buffer output) {
  check_arguments(*this, "all_to_all", input, output);
  require_blocks(*this, input, output);
  const std::int64_t moved = static_cast<std::int64_t>(input.bytes()) * (size() - 1) / size();
  return submit(
      label("all_to_all", input), *collectives_,
      [this, input, output](ncclComm_t comm, cudaStream_t stream) {
        const std::vector<Buffer> out = parts_of(input, size());
        const std::vector<Buffer> in = parts_of(output, size());
        ncclResult_t result = ncclGroupStart();
        for (int peer = 0; peer < size(); ++peer) {
          const auto k = static_cast<std::size_t>(peer);
          result =
              worst(result, ncclSend(out[k].data, out[k].count, nccl_type(input.type), peer, comm, stream));
          result =
              worst(result, ncclRecv(in[k].data, in[k].count, nccl_type(input.type), peer, comm, stream));
        }
        return worst(result, ncclGroupEnd());
      },
      moved, moved);
}

Handle NcclGroup::broadcast(Buffer values, int root) {
  check_arguments(*this, "broadcast", values);
  require_peer(*this, "broadcast", root);
  const auto bytes = static_cast<std::int64_t>(values.bytes());
  return submit(
      label("broadcast", values), *collectives_,
      [values, root](ncclComm_t comm, cudaStream_t stream) {
        return ncclBroadcast(values.data, values.data, values.count, nccl_type(values.type), root, comm,
                             stream);
      },
      rank() == root ? bytes : 0, rank() == root ? 0 : bytes);
}

Handle NcclGroup::send(Buffer values, int to) {
  check_arguments(*this, "send", values);
  require_peer(*this, "send", to);
  const Neighbour& peer = neighbour(to);
  return submit(
      label("send", values, to), *peer.out,
      [values, to = peer.rank_in_pair](ncclComm_t comm, cudaStream_t stream) {
        return ncclSend(values.data, values.count, nccl_type(values.type), to, comm, stream);
      },
      static_cast<std::int64_t>(values.bytes()), 0, &peer);
}

Handle NcclGroup::receive(Buffer values, int from) {
  check_arguments(*this, "receive", values);
  require_peer(*this, "receive", from);
  const Neighbour& peer = neighbour(from);
  return submit(
      label("receive", values, from), *peer.in,
      [values, from = peer.rank_in_pair](ncclComm_t comm, cudaStream_t stream) {
        return ncclRecv(values.data, values.count, nccl_type(values.type), from, comm, stream);
      },
      0, static_cast<std::int64_t>(values.bytes()), &peer);
}

Handle NcclGroup::barrier() {
  void* const token = token_->data();
  return submit(
      label("barrier", {}), *collectives_,
      [token](ncclComm_t comm, cudaStream_t stream) {
        return ncclAllReduce(token, token, 1, ncclInt32, ncclMax, comm, stream);
      },
      0, 0);
}

}  // namespace dtrain::comm
