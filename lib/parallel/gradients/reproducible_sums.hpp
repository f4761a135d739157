#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "comm/group.hpp"
#include "models/borrowed_parameter.hpp"
#include "models/compute/gradient_place.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/gradient_sums.hpp"
#include "parallel/gradients/piece_tree.hpp"

namespace dtrain::parallel {

/// Gradient sums whose bits depend on the cut of a step into micro-batches, and on nothing else: not on how
/// many ranks share them, nor on how a pipeline cuts the model. Each micro-batch's gradient is kept apart and
/// added up along a PieceTree; when the step's last one is done, each rank adds up a slice of all ranks'
/// nodes and hands the result to all. A parameter has a sum for each layer that uses it. These are added
/// last, in the order of the layers, as a pipeline with the layers on different ranks must.
///
/// Costs beside GradientBuckets: memory for gradients_held() gradients instead of one, an addition per
/// micro-batch through memory, and an exchange that nothing hides.
class ReproducibleSums final : public GradientSums {
 public:
  /// `micro_batches`: of a step, over all ranks; own() says which are this rank's. `update_parts`: this
  /// rank updates its part of the parameters only. `shared_out`: what the ranks then share out, in order;
  /// empty: everything at once. `sharers`: the ranks that do; null: the group. Collective over `group`.
  ReproducibleSums(FlatParameters& parameters, models::Model& model, comm::Group& group, int micro_batches,
                   bool update_parts, std::vector<Range> shared_out = {},
                   const comm::Group* sharers = nullptr);
  ~ReproducibleSums() override;

  /// Gradients that a rank has memory for, at most, where all own as many micro-batches: log2(M / ranks) + 2
  /// where that is whole, or one fewer on one rank.
  static int gradients_held(int micro_batches, int ranks);
  /// Elements that a rank sends and receives at a time, of sums of so many.
  static std::int64_t exchanged_elements(int micro_batches, int ranks, std::int64_t size);

  void own(const Ownership& owned) override;
  void begin_step(int micro_batches) override;
  void taken_back(int index) override;
  bool keeps_uses_apart() const override { return true; }
  void expect_share(const models::Parameter*) override {}
  void add_share(const models::Parameter* parameter, const at::Tensor& gradient) override;
  void finish(const std::function<void()>& exchange_shares = {}) override;
  const at::Tensor& gradients() const override { return gradients_; }
  bool updates_parts() const override { return updates_parts_; }
  const std::vector<Range>& update_parts() const override { return update_parts_; }
  std::vector<Range> shared_out() const override { return shared_out_; }
  const std::vector<Range>& own_parts() const override { return own_parts_; }

 private:
  /// A tensor that backward leaves a gradient in.
  struct Leaf {
    models::Parameter* parameter = nullptr;
    std::int64_t offset = 0;                 // of its gradient in the sums
    models::GradientPlace* place = nullptr;  // of a parameter that a layer of this rank owns; else null
    // Another use of a parameter, by a layer of this rank, whose gradient is kept apart; else null.
    models::BorrowedParameter* use = nullptr;
    const at::Tensor& tensor() const { return use != nullptr ? use->value() : parameter->value; }
    at::Tensor view(const at::Tensor& sums) const;
  };
  /// What another layer than the owner adds to the sum of a parameter that a layer of this rank owns.
  struct Share {
    const models::Parameter* parameter = nullptr;
    std::optional<std::size_t> leaf;  // of this rank; nothing: another rank of the pipeline hands it over
    at::Tensor sum = {};
  };
  void add_borrowed(models::Model& model);
  void add_shares();
  void offer_memory();
  void collect(const Leaf& leaf);
  void bring_together();
  void bring_together(Range window, std::int64_t most_nodes);
  static std::int64_t slice_of(Range window, std::int64_t ranks);
  enum class Exchange { blocks, slices };
  void exchange(Exchange what, const at::Tensor& from, const at::Tensor& to);

  FlatParameters& parameters_;
  comm::Group& group_;
  int micro_batches_;
  Range owned_;                               // micro-batches
  std::int64_t done_ = 0;                     // of them in this step
  std::deque<models::GradientPlace> places_;  // by entry of the parameters
  std::vector<Leaf> leaves_;
  std::vector<Share> shares_;  // in the order of the layers
  std::int64_t size_ = 0;      // of the sums: the parameters' and, behind them, those of borrowed uses
  PieceTree tree_;
  at::Tensor piece_;  // [size_]: of the micro-batch whose backward pass comes next
  at::Tensor total_;  // [at least size_]
  at::Tensor gradients_;
  at::Tensor sent_;                                     // [ranks, nodes, elements]: slices of the nodes
  at::Tensor received_;                                 // likewise
  std::vector<std::vector<PieceTree::Node>> nodes_of_;  // by rank of the group: what it brings
  std::vector<bool> taken_back_;                        // by micro-batch
  bool updates_parts_ = false;
  std::vector<Range> shared_out_;
  std::vector<Range> update_parts_;
  std::vector<Range> own_parts_;
};

}  // namespace dtrain::parallel
