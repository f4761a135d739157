#include "comm/traffic.hpp"

#include <algorithm>

namespace dtrain::comm {

void Traffic::take(std::vector<MovedBytes>& totals) {
  totals.resize(std::max(totals.size(), peers_.size()));
  const auto add = [&totals](std::size_t rank, const MovedBytes& bytes) {
    totals[rank].sent += bytes.sent;
    totals[rank].received += bytes.received;
  };
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) add(rank, peers_[rank].take());
  for (auto& [members, count] : groups_) {
    MovedBytes left = count.take();
    auto others = static_cast<std::int64_t>(members.size() - 1);
    for (const int member : members) {
      if (member == own_rank_) continue;
      const MovedBytes share = {left.sent / others, left.received / others};
      add(static_cast<std::size_t>(member), share);
      left = {left.sent - share.sent, left.received - share.received};
      --others;
    }
  }
}

}  // namespace dtrain::comm
