#pragma once

#include "models/layer.hpp"

namespace dtrain::models {

/// Rows `ids` [...] of `table` [words, width], fp32: [..., width]. In backward their gradient is added to
/// what another use of the table has left where its gradient is collected, such as an output layer's weight:
/// no gradient of all words is made for the few that a text has. Where there is none, backward gives a dense
/// one.
at::Tensor fused_lookup(const Parameter& table, const at::Tensor& ids);

/// Whether it may be used: fused kernels are on (KernelScope), the table is whole, and the gradient is one of
/// all samples together (SampleTap).
bool takes_fused_lookup(const Parameter& table);

}  // namespace dtrain::models
