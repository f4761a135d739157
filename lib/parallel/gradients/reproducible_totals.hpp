#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/group.hpp"
#include "core/slice.hpp"
#include "models/model.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/step/step.hpp"

namespace dtrain::parallel {

/// Those of a step's totals whose bits would depend on which rank adds up what, added up in one order on
/// every layout: loss and weight by micro-batch, the squares of the gradient by parameter and blocks of it.
/// Each of these numbers comes from one rank; the others add zero to it.
class ReproducibleTotals {
 public:
  /// `data`: its ranks hold the same gradient, and share the work. `counts_common`: whether this rank counts
  /// what its tensor group has in common. Collective over `world`.
  ReproducibleTotals(models::Model& model, const FlatParameters& parameters, comm::Group& world,
                     comm::Group& data, int micro_batches, bool counts_common);

  void begin_step();
  void add_micro_batch(int index, double loss, double weight);
  /// `gradients`: [FlatParameters::size()], whole and the same on all ranks of the data group. Returns how
  /// many elements of this rank's blocks are not finite.
  std::int64_t add_gradients(const at::Tensor& gradients);

  /// Replaces loss, weight and squares of `total` by sums in order. Collective over the world, and blocking;
  /// every rank gets the same bits.
  void complete(StepTotals& total);

 private:
  std::size_t give_places(models::Model& model, const FlatParameters& parameters, bool counts_common);

  comm::Group& world_;
  comm::Group& data_;
  std::size_t micro_batches_;
  std::vector<Range> blocks_;        // of the flat gradient: those that this rank counts
  std::vector<std::size_t> places_;  // theirs
  std::unique_ptr<comm::SharedBuffer> memory_;
  std::span<double> losses_;   // by micro-batch
  std::span<double> weights_;  // likewise
  std::span<double> squares_;  // by block of the whole model
};

}  // namespace dtrain::parallel
