#pragma once

#include "h5/dataset.hpp"

namespace dtrain::h5 {

/// Throws Error where a chunk that the slab [offset, offset + extent) touches unpacks to another number of
/// bytes than a chunk has, or where that cannot be known: HDF5 (1.10.8) believes what a file says of its
/// packed chunks, and reads beyond the buffer of one that unpacks to less. Understands deflate, shuffle and
/// Fletcher-32; refuses other filters. A dataset without filters passes: open_dataset reads its chunks by
/// their own size. Unpacks each chunk once more than reading does; takes time in proportion to the chunks of
/// the slab.
void require_whole_chunks(const Dataset& dataset, const Shape& offset, const Shape& extent);

}  // namespace dtrain::h5
