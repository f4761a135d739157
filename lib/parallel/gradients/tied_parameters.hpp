#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/group.hpp"
#include "models/borrowed_parameter.hpp"
#include "models/model.hpp"
#include "parallel/data_types.hpp"
#include "parallel/gradients/gradient_sums.hpp"
#include "parallel/memory/layer_shards.hpp"
#include "parallel/pipeline/stage_cuts.hpp"

namespace dtrain::parallel {

/// Parameters that layers on two ranks of a pipeline share: gpt's token embedding, which is its head's weight
/// too. The rank of the layer that owns one updates it. In each step the borrower sends it its share of the
/// gradient, which takes part in the reduction over the data axis, and gets the new values. So both copies
/// hold the same bits, the optimizer's state exists once, and norms count the parameter once.
class TiedParameters {
 public:
  /// Collective over the pipeline, and blocking: the borrowers get the owners' values. `layers`: where the
  /// owners have shards of them only; null: they have the values.
  TiedParameters(models::Model& model, const StageCuts& cuts, comm::Group& pipe, GradientSums& gradients,
                 LayerShards* layers = nullptr);

  /// Forgets the last step's gradients of borrowed parameters.
  void begin_step();
  /// Hands the borrowers' gradients to the owners' sums. Blocking; after this rank's last backward pass.
  void exchange_gradients();
  /// Gives the borrowers the owners' values. Blocking; after the update.
  void exchange_values();

 private:
  /// All uses of a parameter by the layers of one borrower, or one of them where the sums keep them apart.
  struct Tied {
    models::Parameter* parameter = nullptr;
    const models::BorrowedParameter* use = nullptr;
    int peer = 0;           // the other rank
    std::size_t layer = 0;  // that owns it
    bool owned = false;
    at::Tensor memory;  // of the owner: room for the borrower's gradient, as it is sent
  };
  bool is_known(const Tied& tied) const;
  Carrier carrier(const models::Parameter& parameter) const;

  comm::Group& pipe_;
  GradientSums& gradients_;
  LayerShards* layers_;
  std::vector<Tied> tied_;  // in one order on all ranks
};

}  // namespace dtrain::parallel
