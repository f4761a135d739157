#include "comm/collectives/random_drawing.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "comm/mpi/transfer.hpp"

namespace dtrain::comm {
namespace {

// Small, so that messages of many pieces are cheap: 3 GiB in pieces of 1 GiB are 48 KiB in these.
constexpr std::size_t kUsualPieceBytes = std::size_t{16} << 10;
constexpr std::array kKinds = {Kind::all_reduce,     Kind::all_reduce, Kind::reduce_parts,
                               Kind::reduce_scatter, Kind::all_gather, Kind::all_to_all,
                               Kind::broadcast,      Kind::barrier,    Kind::messages};
constexpr std::array kNames = {"all_reduce", "reduce_parts", "reduce_scatter", "all_gather",
                               "all_to_all", "broadcast",    "barrier",        "messages"};
constexpr std::array kTypes = {DataType::float32, DataType::float64, DataType::bfloat16,
                               DataType::float16, DataType::int32,   DataType::int64};
constexpr std::array kOps = {ReduceOp::sum, ReduceOp::max, ReduceOp::min};
constexpr std::array kAlgorithms = {Algorithm::automatic, Algorithm::ring, Algorithm::tree,
                                    Algorithm::hierarchical, Algorithm::mpi};

/// Often about a limit of messages, or with many pieces.
std::size_t draw_count(Chance& chance, DataType type, std::size_t piece_bytes) {
  const std::size_t elements = std::clamp<std::size_t>(piece_bytes, 8, kUsualPieceBytes) / size_of(type);
  switch (chance.below(10)) {
    case 0:
      return chance.below(3);
    case 1:
    case 2:
    case 3:
      return chance.below(200);
    case 4:
    case 5:
      return chance.below(20'000);
    case 6:
    case 7:
      return (1 + chance.below(3)) * elements + chance.below(3) - 1;  // about a limit of messages
    case 8:
      return chance.below(64 * elements);
    default:
      return chance.below(300'000);
  }
}

}  // namespace

Drawn draw(Chance& chance, bool with_mpi, std::size_t piece_bytes) {
  Drawn drawn;
  drawn.kind = chance.one_of(kKinds);
  drawn.group = chance.below(6);
  drawn.type = chance.one_of(kTypes);
  drawn.op = chance.one_of(kOps);
  drawn.algorithm = draw_algorithm(chance, with_mpi);
  drawn.count = draw_count(chance, drawn.type, piece_bytes);
  drawn.second_count = draw_count(chance, drawn.type, piece_bytes);
  drawn.turn = chance.below(1 << 20);
  drawn.shift = chance.once_in(3) ? chance.below(64) : 0;
  drawn.shared = chance.once_in(2);
  drawn.in_place = chance.once_in(2);
  drawn.salt = chance.below(1 << 20);
  return drawn;
}

std::size_t draw_piece_bytes(Chance& chance) {
  constexpr std::array kPieceBytes = {std::size_t{1001}, std::size_t{4096}, kUsualPieceBytes,
                                      kUsualPieceBytes, kLongestPiece};
  return chance.one_of(kPieceBytes);
}

Algorithm draw_algorithm(Chance& chance, bool with_mpi) {
  return kAlgorithms[chance.below(kAlgorithms.size() - (with_mpi ? 0 : 1))];
}

const char* name_of(Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

topology::Cluster invented(topology::Cluster cluster, Chance& chance) {
  const std::size_t nodes = 1 + chance.below(cluster.ranks.size());
  std::map<std::size_t, int> number_of;
  std::vector<int> ranks_on(nodes, 0);
  for (auto& place : cluster.ranks) {
    const auto drawn = chance.below(nodes);
    place.node = number_of.emplace(drawn, static_cast<int>(number_of.size())).first->second;
    place.local_rank = ranks_on[static_cast<std::size_t>(place.node)]++;
  }
  return cluster;
}

topology::MeshShape draw_shape(Chance& chance, int ranks) {
  const auto divisor = [&chance](int n) {
    std::vector<int> divisors;
    for (int d = 1; d <= n; ++d) {
      if (n % d == 0) divisors.push_back(d);
    }
    return divisors[chance.below(divisors.size())];
  };
  topology::MeshShape shape;
  shape.data = divisor(ranks);
  shape.pipe = divisor(ranks / shape.data);
  shape.tensor = ranks / shape.data / shape.pipe;
  return shape;
}

AlgorithmTable draw_table(Chance& chance) {
  std::vector<AlgorithmTable::Entry> entries;
  for (std::size_t bytes = 1 + chance.below(2000); bytes < 2'000'000 && !chance.once_in(4);
       bytes *= 2 + chance.below(30))
    entries.push_back({bytes, kAlgorithms[1 + chance.below(3)]});
  return AlgorithmTable(entries);
}

}  // namespace dtrain::comm
