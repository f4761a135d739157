#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// `1 rank`, `3 ranks`; of things whose plural takes an s.
std::string counted(std::int64_t number, std::string_view thing);

/// `rank 1`, `ranks 1, 2`: which of the numbered things.
std::string numbered(std::string_view thing, const std::vector<int>& numbers);

}  // namespace dtrain
