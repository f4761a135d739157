#include "data/text/token_table.hpp"

#include <functional>

namespace dtrain::data {
namespace {

std::uint32_t hash_of(std::string_view token) {
  const std::uint64_t hash = std::hash<std::string_view>{}(token);
  return static_cast<std::uint32_t>(hash ^ hash >> 32);
}

}  // namespace

TokenTable::TokenTable() : slots_(1024) {}

/// Where `token` is, or the free slot where it belongs.
std::size_t TokenTable::slot_of(std::string_view token, std::uint32_t hash) const {
  std::size_t at = hash & (slots_.size() - 1);
  while (slots_[at].number >= 0) {
    if (slots_[at].hash == hash && tokens_[static_cast<std::size_t>(slots_[at].number)] == token) break;
    at = (at + 1) & (slots_.size() - 1);
  }
  return at;
}

std::int32_t TokenTable::add(std::string_view token) {
  const std::uint32_t hash = hash_of(token);
  std::size_t at = slot_of(token, hash);
  if (slots_[at].number >= 0) return slots_[at].number;
  if (2 * (tokens_.size() + 1) > slots_.size()) {
    grow();
    at = slot_of(token, hash);
  }
  slots_[at] = {hash, size()};
  tokens_.emplace_back(token);
  return slots_[at].number;
}

std::int32_t TokenTable::find(std::string_view token) const {
  return slots_[slot_of(token, hash_of(token))].number;
}

void TokenTable::grow() {
  std::vector<Slot> before(slots_.size() * 2);
  before.swap(slots_);
  for (const Slot& slot : before) {
    if (slot.number < 0) continue;
    std::size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].number >= 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

}  // namespace dtrain::data
