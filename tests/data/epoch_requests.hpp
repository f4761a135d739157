#pragma once

#include <span>
#include <vector>

#include "data/sampler.hpp"
#include "parallel/step/pieces.hpp"

namespace dtrain::data {

/// What a loader brings in the steps [steps.begin, steps.end) of one epoch whose data rank owns the pieces
/// `mine`, in the order in which they are computed. PieceRequest::step is step_offset + the step within the
/// epoch.
inline std::vector<PieceRequest> epoch_requests(std::span<const std::int64_t> order,
                                                std::int64_t global_batch, int micro_batches, Range mine,
                                                Range steps, std::int64_t step_offset) {
  const parallel::Pieces pieces{.samples = static_cast<std::int64_t>(order.size()),
                                .global_batch = global_batch,
                                .micro_batches = micro_batches};
  std::vector<PieceRequest> requests;
  for (std::int64_t step = steps.begin; step < steps.end; ++step) {
    for (std::int64_t k = mine.begin; k < mine.end; ++k) {
      const Range range = pieces.piece(step, static_cast<int>(k));
      requests.push_back({.step = step_offset + step,
                          .micro_batch = static_cast<int>(k),
                          .samples = {order.begin() + range.begin, order.begin() + range.end}});
    }
  }
  return requests;
}

}  // namespace dtrain::data
