#include "parallel/gradients/tied_parameters.hpp"

#include <ATen/ATen.h>

#include <algorithm>

namespace dtrain::parallel {
TiedParameters::TiedParameters(models::Model& model, const StageCuts& cuts, comm::Group& pipe,
                               GradientSums& gradients, LayerShards* layers)
    : pipe_(pipe), gradients_(gradients), layers_(layers) {
  for (const auto& borrowed : model.borrowed()) {
    const int owner = cuts.rank_of(cuts.stage_of(borrowed.owner));
    const int borrower = cuts.rank_of(cuts.stage_of(borrowed.borrower));
    if (owner == borrower || (pipe.rank() != owner && pipe.rank() != borrower)) continue;
    Tied tied{.parameter = borrowed.parameter,
              .use = borrowed.use,
              .layer = borrowed.owner,
              .owned = pipe.rank() == owner};
    tied.peer = tied.owned ? borrower : owner;
    // The layers of one rank leave one gradient, unless the sums keep their uses apart.
    if (!gradients.keeps_uses_apart() && is_known(tied)) continue;
    if (tied.owned) {
      const auto& value = tied.parameter->value;
      tied.memory = at::empty(value.sizes(), value.options().device(carrier(*tied.parameter).place));
      if (!tied.parameter->frozen) gradients.expect_share(tied.parameter);
    }
    tied_.push_back(std::move(tied));
  }
  exchange_values();
}

bool TiedParameters::is_known(const Tied& tied) const {
  return std::ranges::any_of(
      tied_, [&](const Tied& known) { return known.parameter == tied.parameter && known.peer == tied.peer; });
}

Carrier TiedParameters::carrier(const models::Parameter& parameter) const {
  return carrier_of(pipe_, parameter.value.device());
}

void TiedParameters::begin_step() {
  for (const Tied& tied : tied_) {
    if (!tied.owned) tied.parameter->value.mutable_grad().reset();
  }
}

void TiedParameters::exchange_gradients() {
  for (const Tied& tied : tied_) {
    if (tied.parameter->frozen) continue;
    const auto [group, place] = carrier(*tied.parameter);
    if (tied.owned) {
      group.receive(buffer_of(tied.memory), tied.peer).follow();
      gradients_.add_share(tied.parameter, tied.memory);
      continue;
    }
    const auto& value = tied.use->value();
    const auto& gradient = value.grad();
    // Row by row, whatever the layout: a weight's may differ from its gradient's.
    const auto whole = gradient.defined() ? gradient.contiguous() : at::zeros(value.sizes(), value.options());
    const auto out = whole.to(place);
    group.send(buffer_of(out), tied.peer).follow();
  }
}

void TiedParameters::exchange_values() {
  for (const Tied& tied : tied_) {
    const auto [group, place] = carrier(*tied.parameter);
    const bool gathers = tied.owned && layers_ != nullptr && !tied.parameter->frozen;
    if (gathers) layers_->open(tied.layer);
    const auto values = tied.parameter->value.detach();
    const auto here = values.to(place).contiguous();  // whatever the layout on either rank
    (tied.owned ? group.send(buffer_of(here), tied.peer) : group.receive(buffer_of(here), tied.peer))
        .follow();
    if (!tied.owned && !here.is_same(values)) values.copy_(here);
    if (gathers) layers_->close(tied.layer);
  }
}

}  // namespace dtrain::parallel
