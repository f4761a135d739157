#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/encoding.hpp"

namespace dtrain::parallel {

/// Runs the rounds of all nodes in one process, and counts the bytes that each node sends.
inline std::vector<std::size_t> run_rounds(std::vector<std::unique_ptr<comm::MessageRounds>>& nodes) {
  std::vector<std::size_t> sent(nodes.size(), 0);
  while (true) {
    std::vector<std::optional<comm::MessageRounds::Round>> rounds;
    for (auto& node : nodes) rounds.push_back(node->next());
    if (!rounds.front()) return sent;
    for (std::size_t from = 0; from < nodes.size(); ++from) {
      for (std::size_t to = 0; to < nodes.size(); ++to) {
        const auto& out = rounds[from]->outgoing.at(to);
        const auto& in = rounds[to]->incoming.at(from);
        if (out.count != in.count || (from == to && out.count > 0)) throw out.count;  // would hang
        sent[from] += out.bytes();
        if (out.count > 0) std::memcpy(in.data, out.data, out.bytes());
      }
    }
  }
}

/// Adds the nodes' values up by `encodings`, one for each node. Returns the bytes that each node sends.
inline std::vector<std::size_t> add_up(const std::vector<comm::Encoding*>& encodings,
                                       std::vector<std::vector<float>>& values, std::size_t first = 0) {
  std::vector<std::unique_ptr<comm::MessageRounds>> rounds;
  for (std::size_t node = 0; node < values.size(); ++node)
    rounds.push_back(
        encodings[node]->begin(values[node], first, static_cast<int>(node), static_cast<int>(values.size())));
  return run_rounds(rounds);
}

}  // namespace dtrain::parallel
