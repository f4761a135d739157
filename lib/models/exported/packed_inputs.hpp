#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "models/model.hpp"

namespace dtrain::models::exported {

/// The dataset's inputs that a program takes under the names `wanted`, in that order, as indices of `given`.
/// Throws Error (exit code 2) of `subject` where the dataset has none of a name.
std::vector<std::size_t> inputs_by_name(const std::vector<InputFacts>& given,
                                        const std::vector<std::string>& wanted, const std::string& subject);

/// The layer before a program's first: takes samples [n, F], which hold the inputs `given` one behind the
/// other, and gives those of `order`, ids as int64. What else it takes it hands on.
std::unique_ptr<Layer> unpack_inputs(const std::vector<InputFacts>& given,
                                     const std::vector<std::size_t>& order);

}  // namespace dtrain::models::exported
