#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::data {

/// Numbers distinct tokens 0, 1, 2, ... in the order in which they are first seen. Open addressing with
/// linear probing: staging looks up every token of a text once, and nearly all are there already.
class TokenTable {
 public:
  TokenTable();

  /// The number of `token`, a new one when it is new.
  std::int32_t add(std::string_view token);

  /// The number of `token`, or -1.
  std::int32_t find(std::string_view token) const;

  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  const std::string& token(std::int32_t number) const { return tokens_[static_cast<std::size_t>(number)]; }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t number = -1;  // -1: free
  };
  std::size_t slot_of(std::string_view token, std::uint32_t hash) const;
  void grow();
  std::vector<Slot> slots_;         // a power of two of them, at most half taken
  std::deque<std::string> tokens_;  // by number
};

}  // namespace dtrain::data
