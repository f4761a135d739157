#pragma once

namespace dtrain {

/// Mistakes that parallel training may make without any rank noticing. A test plants them, to show that the
/// comparison with one rank finds them.
enum class Fault {
  skipped_all_reduce,   ///< A bucket of gradients stays each rank's own.
  share_counted_twice,  ///< A tied weight's gradient from the other rank is added twice.
  wrong_mask,           ///< A rank drops elements by another micro-batch's mask.
  dropped_micro_batch,  ///< A stage hands on no gradient of one micro-batch.
  stale_gradient,       ///< A stage goes back with the gradient of an earlier micro-batch.
  unsummed_slice,       ///< The gradient of what slices share is one slice's only.
  wrong_slice_of_mask,  ///< Every slice is dropped by the first one's part of the mask.
  bias_on_every_slice,  ///< A bias that all slices share is added by each of them.
};

/// Whether to make this mistake: never. The program of the test is linked with a definition of its own.
bool planted(Fault fault);

}  // namespace dtrain
