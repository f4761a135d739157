#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "comm/group.hpp"
#include "comm/queue.hpp"
#include "core/slice.hpp"
#include "models/compute/gradient_place.hpp"
#include "parallel/gradients/compression/gradient_compression.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/gradient_hooks.hpp"
#include "parallel/gradients/gradient_sums.hpp"
#include "parallel/memory/exchange_memory.hpp"
#include "parallel/memory/memory_meter.hpp"

namespace dtrain::parallel {

/// Gradient sums of which each rank keeps a shard: part_of() each bucket. The gradients of each micro-batch
/// leave in buckets while backward runs, a rank adds the sums of its parts to its shard, and the memory of
/// the bucket takes the next one's gradients.
///
/// In round n all ranks exchange what their n-th micro-batch has left, bucket after bucket in one order; a
/// rank that has fewer micro-batches sends zeros. A gradient that comes before its bucket has memory keeps
/// its own until then.
///
/// Costs beside GradientBuckets: an exchange for each micro-batch of a rank, instead of one for a step.
/// Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC
/// 2020, section 5.2.
class ShardedSums final : public GradientSums {
 public:
  struct Config {
    int micro_batches = 1;            ///< Of a step, over all ranks; own() says which are whose.
    std::int64_t bucket_bytes = 0;    ///< See cut_buckets().
    std::vector<Range> buckets = {};  ///< The buckets, where they are given; empty: as bucket_bytes says.
    std::vector<const models::Parameter*> met_again = {};  ///< See StepEngine::met_again().
    /// Ranks that hold the same shard in other groups, whose sums are added to these at the end of a step;
    /// null: no rank does. Outlives the sums.
    comm::Group* across = nullptr;
    GradientCompression* compression = nullptr;  ///< Of these sums; null: none. Outlives the sums, too.
  };
  /// On the CPU. Collective over `group`: allocates and compares layouts. Throws Error when ranks disagree.
  ShardedSums(FlatParameters& parameters, comm::Group& group, comm::Queue& queue, const Config& config);

  void own(const Ownership& owned) override;
  void begin_step(int micro_batches) override;
  void taken_back(int /*index*/) override {}
  void passed(const models::Parameter* parameter) override;
  void expect_share(const models::Parameter* parameter) override;
  void add_share(const models::Parameter* parameter, const at::Tensor& gradient) override;
  /// Issues what no hook has issued, with zeros where no gradient has come, and waits for every bucket.
  void finish(const std::function<void()>& exchange_shares = {}) override;
  const at::Tensor& gradients() const override { return shard_; }
  bool holds_parts() const override { return true; }
  bool updates_parts() const override { return group_.size() > 1; }
  const std::vector<Range>& update_parts() const override { return parts_; }
  std::vector<Range> shared_out() const override { return buckets_; }
  const std::vector<Range>& own_parts() const override { return parts_; }

 private:
  static constexpr std::int64_t kSlots = 2;  // one is filled while the other one travels

  /// Memory of one bucket of one round.
  struct Slot {
    std::int64_t turn = -1;     // of the bucket that it holds; -1: none
    int missing = 0;            // gradients that have not come
    std::vector<bool> written;  // by entry of the bucket
    at::Tensor received;        // [largest part]
    comm::Handle handle;
  };
  /// Buckets of all rounds are counted in the order in which they leave.
  std::int64_t turns() const { return rounds_ * static_cast<std::int64_t>(buckets_.size()); }
  int all_ranks() const;  // whose micro-batches are added up
  std::size_t bucket_of(std::int64_t turn) const;
  std::int64_t turn_of(std::int64_t round, std::size_t entry) const;
  bool is_last_round(std::int64_t turn) const;
  Slot& slot_of(std::int64_t turn) { return slots_[static_cast<std::size_t>(turn % kSlots)]; }
  /// Where a bucket lies in the memory of its slot, and a gradient in it.
  Range place_of(std::int64_t turn) const;
  at::Tensor view_of(std::int64_t turn, std::size_t entry) const;

  std::size_t entry_of(const models::Parameter* parameter) const;
  void on_gradient(std::size_t entry);
  void take(std::int64_t turn, std::size_t entry, at::Tensor gradient);
  void put(std::int64_t turn, std::size_t entry, const at::Tensor& gradient);
  void open();
  void issue();
  void settle(Slot& slot);
  void advance();
  void sweep(std::int64_t until);

  FlatParameters& parameters_;
  comm::Group& group_;
  comm::Queue& queue_;
  comm::Group* across_;
  GradientCompression* compression_;
  std::vector<Range> buckets_;
  std::vector<std::size_t> bucket_of_;         // by entry of the parameters
  std::vector<std::size_t> first_entry_;       // by bucket, and one more
  std::vector<Range> parts_;                   // by bucket: this rank's
  std::vector<std::int64_t> places_in_shard_;  // theirs
  std::int64_t largest_ = 0;                   // elements of a bucket
  MemoryCharge charge_;
  ExchangeMemory memory_;  // of the slots
  std::array<Slot, kSlots> slots_;
  at::Tensor shard_;                          // [elements of parts_]
  std::deque<models::GradientPlace> places_;  // by entry
  std::vector<int> uses_;                     // by entry: how often backward meets it in a micro-batch
  std::vector<int> shares_;                   // by entry: of other ranks, in each step
  std::vector<int> received_;                 // by entry: gradients that have come in this step
  std::vector<int> zeros_;                    // by entry: of those, zeros that passed() has put
  std::vector<int> passed_;                   // by entry: gradients that must have come
  std::map<std::int64_t, std::vector<std::pair<std::size_t, at::Tensor>>> waiting_;  // by turn
  std::int64_t rounds_ = 1;                                                          // of a step
  int micro_batches_ = 0;               // of this rank in this step
  std::int64_t opened_ = 0;             // the first turn without memory
  std::int64_t issued_ = 0;             // the first turn that has not left
  std::optional<GradientHooks> hooks_;  // goes before what it calls
};

}  // namespace dtrain::parallel
