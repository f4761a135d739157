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

/// The model's first layer where its table is trained, and much larger than what a step of so many samples,
/// of `sample_extent` words each, says of it; null: it is not.
const models::WordTable* large_word_table(const models::Model& model, std::int64_t samples,
                                          std::int64_t sample_extent);

/// The table whose gradient is worth exchanging and applying by rows: the model's first layer, where it is
/// much larger than what a step's samples say of it. Empty: there is none, or no model yet.
std::optional<TableByRows> table_by_rows(const Setting& setting);

/// Why RowUpdates cannot be used in this setting, whatever the model; empty: for table_by_rows() they can.
Answer can_update_by_rows(const Setting& setting);

}  // namespace dtrain::parallel
