#pragma once

#include <cstddef>
#include <memory>

#include "comm/group.hpp"

namespace dtrain::comm {

/// Ordinary memory in the guise of a SharedBuffer, zero-filled and aligned to 64 bytes: where a group has
/// no rank to share with, or /dev/shm has no room.
std::unique_ptr<SharedBuffer> make_plain_buffer(std::size_t bytes);

}  // namespace dtrain::comm
