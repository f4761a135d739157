#pragma once

#include <string>

#include "data/shards/dataset.hpp"
#include "data/text/tokenizer.hpp"

namespace dtrain::data {

/// A fingerprint of what each id of a dataset's text means: SHA-256 over the tokens in the order of their
/// ids, 64 lower-case hexadecimal digits; empty for a dataset without text. A model's embedding fits no
/// other.
std::string vocabulary_hash(const DatasetInfo& info);

/// The same of one language of pairs alone; empty unless the samples are pairs.
std::string vocabulary_hash(const DatasetInfo& info, Side side);

}  // namespace dtrain::data
