#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

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

/// A part of a buffer that goes somewhere else: `begin` is its first element there.
struct LocalPart {
  std::int64_t begin = 0;
  Buffer to;
};

/// Parts of all ranks' inputs, which `mine` tells of and which lie in buffers from allocate(), each reduced
/// to where this rank wants it. No rank reads an input any more when it is done.
std::unique_ptr<Step> make_local_reduce_scatter(Segment& segment, const Descriptor& mine,
                                                std::vector<LocalPart> parts, ReduceOp op,
                                                const Label& where);

/// All ranks' inputs, as above, side by side in `output`, of which each is the rank's part_of.
std::unique_ptr<Step> make_local_all_gather(Segment& segment, const Descriptor& mine, Buffer output,
                                            const Label& where);

/// Of `values`, in buffers from allocate(), each rank's aligned_part to all others. No rank reads another's
/// values any more when it is done.
std::unique_ptr<Step> make_local_slice_gather(Segment& segment, const Descriptor& mine, Buffer values,
                                              const Label& where);

/// `parts[r]`: of this rank's memory, which may be any, what rank r of `segment` has and the others are to
/// get. The same sizes on all ranks.
std::unique_ptr<Step> make_local_part_gather(Segment& segment, const Descriptor& mine,
                                             std::vector<std::vector<Buffer>> parts, const Label& where);

/// Returns when all ranks of `segment` have come.
std::unique_ptr<Step> make_local_barrier(Segment& segment, const Descriptor& mine, const Label& where);

}  // namespace dtrain::comm
