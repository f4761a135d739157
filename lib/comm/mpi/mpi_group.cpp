#include "comm/mpi/mpi_group.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "comm/collectives/comparison.hpp"
#include "comm/collectives/hierarchical.hpp"
#include "comm/collectives/local_steps.hpp"
#include "comm/collectives/over_nodes.hpp"
#include "comm/collectives/slicing.hpp"
#include "comm/group_arguments.hpp"
#include "comm/group_operation.hpp"
#include "comm/mpi/unsettled.hpp"
#include "comm/shared_memory/plain_buffer.hpp"
#include "comm/shared_memory/shared_memory.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

// Tags of collectives repeat long after their messages are gone; point-to-point messages are matched in
// order.
constexpr int kPointToPointTag = 1;
constexpr int kFirstTag = 2;
constexpr std::uint64_t kTags = 4000;  // of kMostChunks each: MPI promises tags up to 32767
constexpr int kComparisonTag = kFirstTag + static_cast<int>(kTags * kMostChunks);

// Below, the first ranks of the nodes carry everything: a message more costs more than what a core saves.
constexpr std::size_t kLaneBytes = std::size_t{256} << 10;

/// Memory of this rank within its group's segment.
class SegmentBuffer final : public SharedBuffer {
 public:
  SegmentBuffer(std::shared_ptr<Segment> segment, std::uint16_t id, std::size_t bytes)
      : segment_(std::move(segment)), id_(id), bytes_(bytes) {}
  ~SegmentBuffer() override { segment_->release(id_); }
  void* data() override { return segment_->address(id_, segment_->rank()); }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<Segment> segment_;
  std::uint16_t id_;
  std::size_t bytes_;
};

/// Memory that all ranks of a node see as the same.
class CommonBuffer final : public SharedBuffer {
 public:
  CommonBuffer(SharedMemory memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {}
  void* data() override { return memory_.part(0); }
  std::size_t bytes() const override { return bytes_; }

 private:
  SharedMemory memory_;
  std::size_t bytes_;
};

/// What allocate() gives. Groups know where it is, and let MPI use it where it lies.
class LastingBuffer final : public SharedBuffer {
 public:
  LastingBuffer(std::unique_ptr<SharedBuffer> memory, std::shared_ptr<LastingMemory> all)
      : memory_(std::move(memory)), all_(std::move(all)) {
    all_->add(memory_->data(), memory_->bytes());
  }
  ~LastingBuffer() override {
    all_->remove(memory_->data());
    if (in_use(memory_->data(), memory_->bytes())) static_cast<void>(memory_.release());  // for ever
  }
  LastingBuffer(const LastingBuffer&) = delete;
  LastingBuffer& operator=(const LastingBuffer&) = delete;
  void* data() override { return memory_->data(); }
  std::size_t bytes() const override { return memory_->bytes(); }

 private:
  std::unique_ptr<SharedBuffer> memory_;
  std::shared_ptr<LastingMemory> all_;
};

class Nothing final : public Step {
 public:
  bool advance() override { return true; }
};

}  // namespace

bool LastingMemory::holds(const void* data, std::size_t bytes) const {
  const auto* const first = static_cast<const std::byte*>(data);
  const auto behind = bytes_at_.upper_bound(first);
  if (behind == bytes_at_.begin()) return false;
  const auto& [begin, length] = *std::prev(behind);
  return first + bytes <= begin + length;
}

MpiGroup::MpiGroup(std::string name, Communicator ranks, std::vector<int> world_ranks,
                   const std::vector<int>& nodes, topology::RankOrder order, AllReduceChoice choice,
                   Queue& queue, const MessageWay& way)
    : name_(std::move(name)),
      ranks_(std::move(ranks)),
      world_ranks_(std::move(world_ranks)),
      id_(group_id(name_, world_ranks_)),
      choice_(choice),
      queue_(queue),
      way_(way),
      bytes_with_all_(way.traffic == nullptr ? nullptr : &way.traffic->among(world_ranks_)) {
  std::map<int, std::vector<int>> members;  // node -> group ranks
  bool nodes_are_alike = true;
  for (int rank = 0; rank < size(); ++rank) members[nodes[static_cast<std::size_t>(rank)]].push_back(rank);
  for (const auto& [node, group_ranks] : members) {
    leaders_.push_back(group_ranks.front());
    nodes_are_alike &= group_ranks.size() == members.begin()->second.size();
    ring_order_.insert(ring_order_.end(), group_ranks.begin(), group_ranks.end());
    nodes_share_ranks_ |= members.size() > 1 && group_ranks.size() > 1;
  }
  everyone_.resize(static_cast<std::size_t>(size()));
  std::iota(everyone_.begin(), everyone_.end(), 0);
  if (order == topology::RankOrder::launched) ring_order_ = everyone_;
  const int my_node = nodes[static_cast<std::size_t>(rank())];
  place_ = {.node = static_cast<int>(std::distance(members.begin(), members.find(my_node))),
            .nodes = static_cast<int>(members.size()),
            .leads = members[my_node].front() == rank()};
  local_.emplace(ranks_.split(my_node, rank()));
  if (local_->size() < 2) return;
  if (nodes_are_alike) lanes_.resize(static_cast<std::size_t>(local_->size()));
  for (std::size_t place = 0; place < lanes_.size(); ++place) {
    for (const auto& [node, group_ranks] : members) lanes_[place].push_back(group_ranks[place]);
  }
  std::vector<int> local_world_ranks;
  for (const int group_rank : members[my_node]) local_world_ranks.push_back(world_rank_of(group_rank));
  segment_ = std::make_shared<Segment>(*local_, std::move(local_world_ranks), way_.traffic);
}

std::unique_ptr<SharedBuffer> MpiGroup::allocate(std::size_t bytes) {
  const auto wanted = static_cast<std::int64_t>(bytes);
  require(ranks_.min(wanted) == ranks_.max(wanted), "the ranks ask for buffers of different sizes",
          {.subject = fmt::format("allocate in group {}", name_),
           .advice = "ask for the same size on all ranks"});
  std::unique_ptr<SharedBuffer> shared;
  if (segment_) {
    if (const auto id = segment_->allocate(*local_, bytes)) {
      shared = std::make_unique<SegmentBuffer>(segment_, *id, bytes);
    }
  }
  // Nodes choose their part in an exchange by where the buffer lies: all of them, or none.
  const bool all_have = on_one_node() || lanes_.empty() || ranks_.min(std::int64_t{shared ? 1 : 0}) == 1;
  return std::make_unique<LastingBuffer>(shared && all_have ? std::move(shared) : make_plain_buffer(bytes),
                                         lasting_);
}

/// For messages: with an owner where the memory is from allocate(), which asks before it is freed.
Buffer MpiGroup::lasting(Buffer values) const {
  if (!values.owner && lasting_->holds(values.data, values.bytes()))
    values.owner = std::shared_ptr<const void>(std::shared_ptr<const void>(), values.data);
  return values;
}

std::unique_ptr<SharedBuffer> MpiGroup::allocate_common(std::size_t bytes) {
  if (!on_one_node()) return nullptr;
  const auto ranks = static_cast<std::size_t>(size());
  auto memory = SharedMemory::create(*local_, std::max<std::size_t>((bytes + ranks - 1) / ranks, 1));
  return memory ? std::make_unique<CommonBuffer>(std::move(*memory), bytes) : nullptr;
}

Label MpiGroup::next_label(std::string_view operation, const Buffer& values) {
  return {.operation = operation,
          .group = name_,
          .number = ++operations_,
          .group_id = id_,
          .members = &world_ranks_,
          .count = values.count,
          .type = values.type};
}

Label MpiGroup::message_label(std::string_view operation, const Buffer& values, int peer) {
  return {.operation = operation,
          .group = name_,
          .number = ++messages_,
          .group_id = id_,
          .members = &world_ranks_,
          .peer = world_rank_of(peer),
          .count = values.count,
          .type = values.type};
}

Channel MpiGroup::channel_of(const Label& label) const {
  return {ranks_.handle(),  kFirstTag + static_cast<int>(label.number % kTags * kMostChunks),
          way_.piece_bytes, way_.delays,
          way_.traffic,     &world_ranks_};
}

Channel MpiGroup::channel_of_messages() const {
  return {ranks_.handle(), kPointToPointTag, way_.piece_bytes, way_.delays, way_.traffic, &world_ranks_};
}

void MpiGroup::compare(Compare which) {
  compared_until_ = which == Compare::all ? std::numeric_limits<std::uint64_t>::max()
                                          : std::max(compared_until_, operations_ + kCompared);
}

/// What an operation over messages begins with.
MpiGroup::Steps MpiGroup::compared(const Label& label, const Descriptor& mine) const {
  Steps steps;
  if (segment_) steps.push_back(make_local_barrier(*segment_, mine, label));
  if (!on_one_node() && size() > 1 && label.number <= compared_until_)
    steps.push_back(make_comparison(party(everyone_, {ranks_.handle(), kComparisonTag}), mine, label));
  return steps;
}

Handle MpiGroup::submit(const Label& label, std::unique_ptr<Step> step) {
  return queue_.submit(std::make_unique<GroupOperation>(label, std::move(step), this));
}

Handle MpiGroup::submit(const Label& label, Steps steps) {
  return queue_.submit(std::make_unique<GroupOperation>(label, std::move(steps), this));
}

Party MpiGroup::party(const std::vector<int>& ranks, const Channel& channel) const {
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  return {channel, ranks, static_cast<int>(self - ranks.begin())};
}

Descriptor MpiGroup::describe(OperationKind kind, const Buffer& values) const {
  Descriptor mine;
  mine.operation = static_cast<std::uint8_t>(kind);
  mine.type = static_cast<std::uint8_t>(values.type);
  mine.count = values.count;
  if (segment_) segment_->locate(values.data, values.bytes(), mine);
  return mine;
}

Algorithm MpiGroup::choose(const Buffer& values, Algorithm algorithm) const {
  if (algorithm == Algorithm::automatic) algorithm = choice_.algorithm;
  if (algorithm != Algorithm::automatic) return algorithm;
  if (on_one_node()) return Algorithm::hierarchical;
  if (const auto fastest = choice_.measured->at(values.bytes())) return *fastest;
  if (nodes_share_ranks_) return Algorithm::hierarchical;
  return values.bytes() <= kTreeBytes ? Algorithm::tree : Algorithm::ring;
}

void MpiGroup::add_all_reduce_among(Steps& steps, const std::vector<int>& ranks, const Channel& channel,
                                    Buffer values, ReduceOp op, Algorithm algorithm) const {
  if (algorithm == Algorithm::mpi) {
    steps.push_back(make_mpi_all_reduce(channel, size(), values, op, bytes_with_all_));
  } else if (algorithm == Algorithm::tree) {
    steps.push_back(make_tree_all_reduce(party(ranks, channel), values, op));
  } else {
    steps.push_back(make_ring_all_reduce(party(ranks, channel), values, op));
  }
}

bool MpiGroup::goes_in_lanes(const Descriptor& mine, const Buffer& values) const {
  return !lanes_.empty() && mine.allocation != 0 && values.bytes() > kLaneBytes;
}

bool MpiGroup::goes_over_nodes(const Buffer& values) const {
  return !lanes_.empty() && !on_one_node() && values.bytes() >= kLeastOverNodes;
}

Crossing MpiGroup::crossing(const Channel& channel, bool in_lanes) const {
  const std::vector<int>& ranks = in_lanes ? lane() : leaders_;
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  if (self == ranks.end()) return {.channel = channel, .ranks = {}};
  return {.channel = channel,
          .ranks = ranks,
          .index = static_cast<int>(self - ranks.begin()),
          .in_lanes = in_lanes};
}

Handle MpiGroup::all_reduce(Buffer values, ReduceOp op, Algorithm algorithm) {
  check_arguments(*this, "all_reduce", values);
  const Label label = next_label("all_reduce", values);
  if (size() == 1) return submit(label, std::make_unique<Nothing>());
  const Algorithm chosen = choose(values, algorithm);
  Descriptor mine = describe(OperationKind::all_reduce, values);
  mine.op = static_cast<std::uint8_t>(op);
  mine.detail = static_cast<std::uint8_t>(chosen);
  if (chosen == Algorithm::hierarchical && on_one_node()) {
    return submit(label, make_local_reduce(*segment_, mine, values, op, Target::everyone, label));
  }
  values = lasting(std::move(values));
  const Channel channel = channel_of(label);
  Steps steps;
  if (chosen != Algorithm::hierarchical || label.number <= compared_until_) steps = compared(label, mine);
  if (chosen == Algorithm::hierarchical) {
    steps.push_back(make_hierarchical_all_reduce(
        segment_.get(), mine, crossing(channel, goes_in_lanes(mine, values)), values, op, label));
    return submit(label, std::move(steps));
  }
  add_all_reduce_among(steps, chosen == Algorithm::ring ? ring_order_ : everyone_, channel, values, op,
                       chosen);
  return submit(label, std::move(steps));
}

Handle MpiGroup::all_reduce_encoded(Buffer values, Encoding& encoding) {
  if (size() == 1 || on_one_node()) return all_reduce(values, ReduceOp::sum, Algorithm::automatic);
  check_arguments(*this, "all_reduce", values);
  require(values.type == DataType::float32, "only float32 can be encoded",
          {.subject = fmt::format("all_reduce in group {}", name_)});
  const Label label = next_label("all_reduce", values);
  Descriptor mine = describe(OperationKind::all_reduce, values);
  mine.op = static_cast<std::uint8_t>(ReduceOp::sum);
  mine.detail = static_cast<std::uint8_t>(Algorithm::hierarchical);
  mine.root = encoding.id();
  Steps steps;
  if (label.number <= compared_until_) steps = compared(label, mine);
  const bool in_lanes = !encoding.takes_whole_buffers() && goes_in_lanes(mine, values);
  values = lasting(std::move(values));
  steps.push_back(make_hierarchical_all_reduce(segment_.get(), mine, crossing(channel_of(label), in_lanes),
                                               values, ReduceOp::sum, label, &encoding));
  return submit(label, std::move(steps));
}

bool MpiGroup::leaves_parts_in_node(const Buffer& values, Algorithm algorithm, const Descriptor& mine) const {
  return on_one_node() && choose(values, algorithm) == Algorithm::hierarchical &&
         leaves_parts(mine, values.bytes());
}

Range MpiGroup::reduced_part(Buffer values, Algorithm algorithm) const {
  if (!leaves_parts_in_node(values, algorithm, describe(OperationKind::reduce_parts, values))) {
    return Group::reduced_part(values, algorithm);
  }
  return aligned_part(values.count, size_of(values.type), segment_->rank(), segment_->size());
}

Handle MpiGroup::reduce_parts(Buffer values, ReduceOp op, Algorithm algorithm) {
  Descriptor mine = describe(OperationKind::reduce_parts, values);
  if (!leaves_parts_in_node(values, algorithm, mine)) return all_reduce(values, op, algorithm);
  check_arguments(*this, "reduce_parts", values);
  const Label label = next_label("reduce_parts", values);
  mine.op = static_cast<std::uint8_t>(op);
  return submit(label, make_local_reduce(*segment_, mine, values, op, Target::owners, label));
}

Handle MpiGroup::reduce_scatter(Buffer input, Buffer output, ReduceOp op) {
  check_arguments(*this, "reduce_scatter", input, output);
  require_part(*this, "reduce_scatter", input, output);
  const Label label = next_label("reduce_scatter", input);
  Descriptor mine = describe(OperationKind::reduce_scatter, input);
  mine.op = static_cast<std::uint8_t>(op);
  if (on_one_node() && mine.allocation != 0) {
    const Range own = part_of(static_cast<std::int64_t>(input.count), rank(), size());
    return submit(label, make_local_reduce_scatter(*segment_, mine, {{own.begin, output}}, op, label));
  }
  Steps steps = compared(label, mine);
  if (goes_over_nodes(input) && mine.allocation != 0) {
    steps.push_back(make_reduce_scatter_over_nodes(
        *segment_, mine, {lanes_, party(lane(), channel_of(label))}, input, lasting(output), op, label));
    return submit(label, std::move(steps));
  }
  steps.push_back(make_reducing_exchange(party(everyone_, channel_of(label)),
                                         parts_of(lasting(input), size()), lasting(output), op));
  return submit(label, std::move(steps));
}

Handle MpiGroup::all_gather(Buffer input, Buffer output) {
  check_arguments(*this, "all_gather", input, output);
  require_part(*this, "all_gather", output, input);
  const Label label = next_label("all_gather", output);
  Descriptor mine = describe(OperationKind::all_gather, input);
  mine.count = output.count;
  if (on_one_node() && mine.allocation != 0) {
    return submit(label, make_local_all_gather(*segment_, mine, output, label));
  }
  Steps steps = compared(label, mine);
  if (goes_over_nodes(output)) {
    steps.push_back(make_all_gather_over_nodes(*segment_, mine, {lanes_, party(lane(), channel_of(label))},
                                               lasting(input), lasting(output), label));
    return submit(label, std::move(steps));
  }
  std::vector<Buffer> outgoing(static_cast<std::size_t>(size()), lasting(input));
  steps.push_back(make_exchange(party(everyone_, channel_of(label)), std::move(outgoing),
                                parts_of(lasting(output), size())));
  return submit(label, std::move(steps));
}

Handle MpiGroup::all_to_all(Buffer input, Buffer output) {
  check_arguments(*this, "all_to_all", input, output);
  require_blocks(*this, input, output);
  const Label label = next_label("all_to_all", input);
  Steps steps = compared(label, describe(OperationKind::all_to_all, input));
  steps.push_back(make_exchange(party(everyone_, channel_of(label)), parts_of(lasting(input), size()),
                                parts_of(lasting(output), size())));
  return submit(label, std::move(steps));
}

Handle MpiGroup::broadcast(Buffer values, int root) {
  check_arguments(*this, "broadcast", values);
  require_peer(*this, "broadcast", root);
  const Label label = next_label("broadcast", values);
  if (size() == 1) return submit(label, std::make_unique<Nothing>());
  Descriptor mine = describe(OperationKind::broadcast, values);
  mine.root = static_cast<std::uint16_t>(root);
  if (on_one_node()) return submit(label, make_local_broadcast(*segment_, mine, values, root, label));
  std::vector<int> order = everyone_;
  std::rotate(order.begin(), order.begin() + root, order.end());
  Steps steps = compared(label, mine);
  steps.push_back(make_tree_broadcast(party(order, channel_of(label)), lasting(values)));
  return submit(label, std::move(steps));
}

Handle MpiGroup::send(Buffer values, int to) {
  check_arguments(*this, "send", values);
  require_peer(*this, "send", to);
  return queue_.submit(std::make_unique<GroupOperation>(
      message_label("send", values, to), make_send(channel_of_messages(), lasting(values), to), nullptr));
}

Handle MpiGroup::receive(Buffer values, int from) {
  check_arguments(*this, "receive", values);
  require_peer(*this, "receive", from);
  return queue_.submit(
      std::make_unique<GroupOperation>(message_label("receive", values, from),
                                       make_receive(channel_of_messages(), lasting(values), from), nullptr));
}

Handle MpiGroup::barrier() {
  const Label label = next_label("barrier");
  if (size() == 1) return submit(label, std::make_unique<Nothing>());
  if (on_one_node()) {
    return submit(label, make_local_barrier(*segment_, describe(OperationKind::barrier, Buffer{}), label));
  }
  Steps steps = compared(label, describe(OperationKind::barrier, Buffer{}));
  steps.push_back(make_message_barrier(party(everyone_, channel_of(label))));
  return submit(label, std::move(steps));
}

}  // namespace dtrain::comm
