#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// `1 rank`, `3 ranks`, `4 batches`; of things whose plural takes an s, or an es behind ch.
std::string counted(std::int64_t number, std::string_view thing);

/// `2,859`
std::string grouped(std::int64_t number);

/// `rank 1`, `ranks 1, 2`: which of the numbered things.
std::string numbered(std::string_view thing, const std::vector<int>& numbers);

/// `0-3,8` for {0, 1, 2, 3, 8}, which ascend: the way the kernel writes cores.
std::string number_list(std::span<const int> numbers);

}  // namespace dtrain
