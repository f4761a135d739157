#pragma once

#include <memory>

#include "comm/group.hpp"
#include "models/model.hpp"
#include "optim/optimizer.hpp"
#include "parallel/flat_parameters.hpp"
#include "parallel/row_updates.hpp"
#include "train/config.hpp"

namespace dtrain::train {

/// The parameter whose gradient is exchanged and applied by rows, or null: the first layer's table, where it
/// is much larger than what a step's samples say of it and the update rule allows it.
const models::Parameter* parameter_by_rows(const RunConfig& config, models::Model& model,
                                           const models::Shape& sample_shape);

/// The exchange and update of that parameter; null where there is none. Collective over `group`.
std::unique_ptr<parallel::RowUpdates> make_row_updates(const RunConfig& config, models::Model& model,
                                                       const models::Shape& sample_shape,
                                                       const parallel::FlatParameters& parameters,
                                                       const optim::Optimizer& optimizer, comm::Group& group,
                                                       parallel::RowUpdates::Copies copies);

}  // namespace dtrain::train
