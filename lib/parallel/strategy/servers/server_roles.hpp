#pragma once

#include <cstdint>
#include <optional>

#include "core/slice.hpp"

namespace dtrain::parallel {

/// Which data ranks compute and which keep a part of the parameters: the last ones, which do nothing else, or
/// all of them, beside computing.
class ServerRoles {
 public:
  /// `servers`: of `data_ranks`, fewer than those; 0: all of them serve and compute.
  ServerRoles(int data_ranks, int servers)
      : copies_(data_ranks - servers),
        servers_(servers > 0 ? servers : data_ranks),
        first_(servers > 0 ? copies_ : 0),
        beside_(servers == 0) {}

  int copies() const { return copies_; }  ///< The first data ranks.
  int servers() const { return servers_; }
  bool beside() const { return beside_; }  ///< A rank that serves computes as well.
  bool computes(int data_rank) const { return data_rank < copies_; }

  int rank_of(int server) const { return first_ + server; }  ///< Data rank.
  int dealer() const { return first_; }                      ///< Data rank of the server that deals work.
  /// Which server a data rank is; empty: none.
  std::optional<int> server_at(int data_rank) const {
    if (data_rank < first_) return std::nullopt;
    return data_rank - first_;
  }
  /// Of `elements`, what a server keeps.
  Range part(std::int64_t elements, int server) const { return part_of(elements, server, servers_); }

 private:
  int copies_;
  int servers_;
  int first_;
  bool beside_;
};

}  // namespace dtrain::parallel
