#pragma once

#include <string>

#include "data/shards/dataset.hpp"

namespace dtrain::data {

/// A fingerprint of what a run reads: SHA-256 over task, shape, classes, transformations, vocabularies, and
/// of each split the number of its samples and its shards' own hashes, 64 lower-case hexadecimal digits. Not
/// of the name. Staged again from the same originals with the same options, a dataset has the same one.
std::string dataset_hash(const DatasetInfo& info);

}  // namespace dtrain::data
