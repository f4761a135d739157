#pragma once

#include <memory>

#include "models/model.hpp"
#include "parallel/pipeline/stage_cuts.hpp"

namespace dtrain::plan {

/// Of samples of 12 features: flatten, input_fc (208 parameters), its activation, hidden_fc (136), its
/// activation, output_fc (27), giving 12, 16, 16, 8, 8 and 3 numbers.
inline std::unique_ptr<models::Model> planned_model() {
  return models::find_model("mlp").make({.task = "table_classification", .sample_shape = {12}, .classes = 3},
                                        {{"hidden", "16,8"}});
}

inline parallel::StageCuts one_stage() { return {.ranks = 1, .layers = {{0, 6}}}; }

/// The second rank's begins with hidden_fc.
inline parallel::StageCuts two_stages() { return {.ranks = 2, .layers = {{0, 3}, {3, 6}}}; }

}  // namespace dtrain::plan
