#include "comm/collectives/over_nodes.hpp"

#include <cstdint>
#include <utility>

#include "comm/collectives/local_steps.hpp"
#include "comm/group_arguments.hpp"
#include "core/slice.hpp"

namespace dtrain::comm {
namespace {

/// One step, then another, as one.
class TwoSteps : public Step {
 public:
  bool advance() override {
    if (first_ == nullptr) begin();
    if (!first_is_over_) {
      if (!first_->advance()) return false;
      count(*first_);
      first_is_over_ = true;
    }
    if (!second_->advance()) return false;
    count(*second_);
    return true;
  }
  std::string missing() const override { return first_ == nullptr ? std::string() : current().missing(); }
  bool sleep(double limit_s) override { return first_ != nullptr && current().sleep(limit_s); }

 protected:
  /// Makes both, not before the operation's turn: many may be waiting for theirs.
  virtual void begin() = 0;

  std::unique_ptr<Step> first_;
  std::unique_ptr<Step> second_;

 private:
  Step& current() const { return first_is_over_ ? *second_ : *first_; }

  bool first_is_over_ = false;
};

class ReduceScatterOverNodes final : public TwoSteps {
 public:
  ReduceScatterOverNodes(Segment& segment, const Descriptor& mine, NodeLanes lanes, const Buffer& input,
                         Buffer output, ReduceOp op, const Label& where)
      : segment_(segment),
        mine_(mine),
        lanes_(std::move(lanes)),
        count_(static_cast<std::int64_t>(input.count)),
        output_(std::move(output)),
        op_(op),
        where_(where) {}

 private:
  void begin() override {
    const auto own_node = static_cast<std::size_t>(lanes_.own.index);
    std::vector<Range> ranges;
    std::size_t elements = 0;
    for (const int rank : lanes_.own.ranks) {
      ranges.push_back(part_of(count_, rank, ranks()));
      if (ranges.size() - 1 != own_node) elements += static_cast<std::size_t>(ranges.back().size());
    }
    const auto memory = std::make_shared<std::vector<std::byte>>(elements * size_of(output_.type));
    const Buffer all{memory->data(), elements, output_.type, memory};
    std::vector<LocalPart> parts;
    std::vector<Buffer> outgoing;
    std::size_t before = 0;
    for (std::size_t node = 0; node < ranges.size(); ++node) {
      const auto size = static_cast<std::size_t>(ranges[node].size());
      outgoing.push_back(node == own_node ? output_ : all.part(before, size));
      if (node != own_node) before += size;
      parts.push_back({ranges[node].begin, outgoing.back()});
    }
    first_ = make_local_reduce_scatter(segment_, mine_, std::move(parts), op_, where_);
    second_ = make_reducing_exchange(std::move(lanes_.own), std::move(outgoing), output_, op_);
  }
  int ranks() const { return static_cast<int>(lanes_.ranks.size() * lanes_.own.ranks.size()); }

  Segment& segment_;
  Descriptor mine_;
  NodeLanes lanes_;
  std::int64_t count_;
  Buffer output_;
  ReduceOp op_;
  Label where_;
};

class AllGatherOverNodes final : public TwoSteps {
 public:
  AllGatherOverNodes(Segment& segment, const Descriptor& mine, NodeLanes lanes, Buffer input,
                     const Buffer& output, const Label& where)
      : segment_(segment),
        mine_(mine),
        lanes_(std::move(lanes)),
        input_(std::move(input)),
        output_(output),
        where_(where) {}

 private:
  void begin() override {
    const auto of_rank = parts_of(output_, static_cast<int>(lanes_.ranks.size() * lanes_.own.ranks.size()));
    std::vector<std::vector<Buffer>> of_lane;
    for (const auto& ranks : lanes_.ranks) {
      auto& parts = of_lane.emplace_back();
      for (const int rank : ranks) parts.push_back(of_rank[static_cast<std::size_t>(rank)]);
    }
    const auto own = of_lane[static_cast<std::size_t>(segment_.rank())];
    first_ = make_exchange(std::move(lanes_.own), std::vector<Buffer>(own.size(), input_), own);
    second_ = make_local_part_gather(segment_, mine_, std::move(of_lane), where_);
  }

  Segment& segment_;
  Descriptor mine_;
  NodeLanes lanes_;
  Buffer input_;
  Buffer output_;
  Label where_;
};

}  // namespace

std::unique_ptr<Step> make_reduce_scatter_over_nodes(Segment& segment, const Descriptor& mine,
                                                     NodeLanes lanes, const Buffer& input, Buffer output,
                                                     ReduceOp op, const Label& where) {
  return std::make_unique<ReduceScatterOverNodes>(segment, mine, std::move(lanes), input, std::move(output),
                                                  op, where);
}

std::unique_ptr<Step> make_all_gather_over_nodes(Segment& segment, const Descriptor& mine, NodeLanes lanes,
                                                 const Buffer& input, const Buffer& output,
                                                 const Label& where) {
  return std::make_unique<AllGatherOverNodes>(segment, mine, std::move(lanes), input, output, where);
}

}  // namespace dtrain::comm
