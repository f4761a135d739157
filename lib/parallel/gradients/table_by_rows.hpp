#pragma once

#include <optional>

#include "models/layers/word_table.hpp"
#include "models/model.hpp"
#include "parallel/gradients/row_exchange.hpp"
#include "parallel/strategy/abilities.hpp"

namespace dtrain::parallel {

/// A table of which a step uses few rows.
struct TableByRows {
  const models::WordTable* layer = nullptr;
  const models::Parameter* weight = nullptr;
  RowLimits limits;  ///< Of a step, on each of the data ranks.
};

/// The table whose gradient is worth exchanging and applying by rows: the model's first layer, where it is
/// much larger than what a step's samples say of it. Empty: there is none, or no model yet.
std::optional<TableByRows> table_by_rows(const Setting& setting);

/// Why RowUpdates cannot be used in this setting, whatever the model; empty: for table_by_rows() they can.
Answer can_update_by_rows(const Setting& setting);

}  // namespace dtrain::parallel
