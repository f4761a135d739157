#include "data/shards/vocabulary_hash.hpp"

#include <cstdint>
#include <vector>

#include "core/sha256.hpp"

namespace dtrain::data {
namespace {

void add(Sha256& digest, const std::vector<std::string>& tokens) {
  const std::uint64_t count = tokens.size();
  digest.add(&count, sizeof(count));
  for (const std::string& token : tokens) digest.add(token.c_str(), token.size() + 1);  // with its end
}

}  // namespace

std::string vocabulary_hash(const DatasetInfo& info) {
  if (!info.tokenizer) return {};
  Sha256 digest;
  add(digest, info.tokenizer->vocabulary);
  add(digest, info.tokenizer->target_vocabulary);
  return digest.hexadecimal();
}

std::string vocabulary_hash(const DatasetInfo& info, Side side) {
  if (!info.tokenizer || info.tokenizer->target_vocabulary.empty()) return {};
  Sha256 digest;
  add(digest, side == Side::source ? info.tokenizer->vocabulary : info.tokenizer->target_vocabulary);
  return digest.hexadecimal();
}

}  // namespace dtrain::data
