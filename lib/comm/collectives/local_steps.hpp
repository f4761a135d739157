#pragma once

#include <cstddef>
#include <memory>

#include "comm/label.hpp"
#include "comm/shared_memory/segment.hpp"
#include "comm/step.hpp"
#include "comm/types.hpp"

namespace dtrain::comm {

/// Which ranks have the sums at the end of a reduction within a node: all ranks; local rank 0; or, of buffers
/// from allocate(), each rank those of its aligned_part (of other buffers everyone).
enum class Target { everyone, leader, owners };

/// Whether a reduction to the owners of `bytes` in such memory leaves parts, or everything everywhere.
bool leaves_parts(const Descriptor& mine, std::size_t bytes);

/// Compares what all ranks of the segment say they do. Throws Error naming the rank that differs.
void check_agreement(const Segment& segment, const Descriptor& mine, const Label& where);

/// Every rank chooses its way by where its own buffer lies: throws Error naming the rank whose buffer is from
/// allocate() where this rank's is not, or the other way round.
void check_memory(const Segment& segment, const Descriptor& mine, const Label& where);

/// Element-wise reduction over the ranks of `segment`. Buffers from allocate() are reduced where they are,
/// each rank its own slice of everybody's; others go through the segment in chunks; small ones are read by
/// everyone at once. `where` names the operation in errors.
std::unique_ptr<Step> make_local_reduce(Segment& segment, const Descriptor& mine, Buffer values, ReduceOp op,
                                        Target target, const Label& where);

/// The root's values to all ranks of `segment`. `descriptor` tells where the root's lie.
std::unique_ptr<Step> make_local_broadcast(Segment& segment, const Descriptor& mine, Buffer values,
                                           int local_root, const Label& where);

/// Elements from `begin` of all ranks' inputs, which `mine` tells of and which lie in buffers from
/// allocate(), reduced into `output`. No rank reads an input any more when it is done.
std::unique_ptr<Step> make_local_reduce_scatter(Segment& segment, const Descriptor& mine, std::int64_t begin,
                                                Buffer output, ReduceOp op, const Label& where);

/// All ranks' inputs, as above, side by side in `output`, of which each is the rank's part_of.
std::unique_ptr<Step> make_local_all_gather(Segment& segment, const Descriptor& mine, Buffer output,
                                            const Label& where);

/// Of `values`, in buffers from allocate(), each rank's aligned_part to all others. No rank reads another's
/// values any more when it is done.
std::unique_ptr<Step> make_local_slice_gather(Segment& segment, const Descriptor& mine, Buffer values,
                                              const Label& where);

/// Returns when all ranks of `segment` have come.
std::unique_ptr<Step> make_local_barrier(Segment& segment, const Descriptor& mine, const Label& where);

}  // namespace dtrain::comm
