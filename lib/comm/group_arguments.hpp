#pragma once

#include <string_view>
#include <vector>

#include "comm/group.hpp"

namespace dtrain::comm {

/// What every backend checks before an operation enters the queue. All throw Error naming operation and
/// group.
void check_arguments(const Group& group, std::string_view operation, const Buffer& values);
void check_arguments(const Group& group, std::string_view operation, const Buffer& input,
                     const Buffer& output);
/// `part` has as many elements as part_of gives this rank of `whole`.
void require_part(const Group& group, std::string_view operation, const Buffer& whole, const Buffer& part);
/// Both have the same count, a multiple of the group's size.
void require_blocks(const Group& group, const Buffer& input, const Buffer& output);
void require_peer(const Group& group, std::string_view operation, int peer);

/// `whole` cut as part_of(n, rank, parts).
std::vector<Buffer> parts_of(const Buffer& whole, int parts);

}  // namespace dtrain::comm
