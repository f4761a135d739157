#pragma once

#include <memory>
#include <vector>

#include "comm/collectives/message_steps.hpp"
#include "comm/label.hpp"
#include "comm/shared_memory/segment.hpp"
#include "comm/step.hpp"
#include "core/error.hpp"

namespace dtrain::comm {

/// Whether two ranks mean the same operation. Where their buffers lie may differ.
bool agree(const Descriptor& a, const Descriptor& b);

/// Names two ranks, as MPI_COMM_WORLD does, and the calls of theirs that do not match.
Error mismatch(int rank, const Descriptor& mine, int other, const Descriptor& theirs, const Label& where);

/// Compares what all ranks of `party` say they do: each with the one before it, by one message. Throws Error
/// as mismatch() on a rank that differs from the one before. Of `where`, members name the ranks.
std::unique_ptr<Step> make_comparison(Party party, const Descriptor& mine, const Label& where);

}  // namespace dtrain::comm
