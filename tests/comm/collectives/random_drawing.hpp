// What a run of random operations draws: operations, groups' places, meshes, tables.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

#include "comm/collectives/algorithm_table.hpp"
#include "comm/types.hpp"
#include "topology/cluster.hpp"
#include "topology/mesh.hpp"

namespace dtrain::comm {

/// The same numbers on all ranks that draw in the same order.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : engine_(seed) {}
  /// In [0, n).
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_()) % n; }
  bool once_in(std::size_t n) { return below(n) == 0; }
  template <typename T, std::size_t N>
  T one_of(const std::array<T, N>& values) {
    return values[below(N)];
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

enum class Kind {
  all_reduce,
  reduce_parts,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  barrier,
  messages
};
const char* name_of(Kind kind);

/// What all ranks agree on; what depends on the size of a rank's own group is taken from it locally.
struct Drawn {
  Kind kind = Kind::barrier;
  std::size_t group = 0;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  std::size_t count = 0;
  std::size_t second_count = 0;  // of messages
  std::size_t turn = 0;          // root, or distance to the peer
  std::size_t shift = 0;         // elements off the alignment
  bool shared = false;
  bool in_place = false;
  std::uint64_t salt = 0;
};

/// The longest piece of a message: mostly so small that messages have many.
std::size_t draw_piece_bytes(Chance& chance);
Drawn draw(Chance& chance, bool with_mpi, std::size_t piece_bytes);
/// What all_reduce takes where a call does not choose: MPI's own too, unless a death would leave it waiting.
Algorithm draw_algorithm(Chance& chance, bool with_mpi);
/// The ranks of a job dealt at random to up to as many invented nodes.
topology::Cluster invented(topology::Cluster cluster, Chance& chance);
topology::MeshShape draw_shape(Chance& chance, int ranks);
AlgorithmTable draw_table(Chance& chance);

}  // namespace dtrain::comm
