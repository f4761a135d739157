#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/group.hpp"
#include "state/remains.hpp"
#include "topology/cluster.hpp"
#include "topology/mesh.hpp"

namespace dtrain::state {

/// Copies in memory for the case that all ranks that hold a part of the model are lost: every so many steps
/// each rank keeps its own part and that of another one of its copy of the model, on another node where there
/// is one. The two newest steps are kept, so that a loss while one is copied leaves the other.
class PartCopies {
 public:
  /// Where a rank copies to and from. Everything is borrowed.
  struct Ranks {
    const topology::Mesh& mesh;
    const topology::Cluster& cluster;
    comm::Group& world;  ///< All ranks of the mesh.
    /// Each rank's text, in order of rank. Collective over `world`.
    std::function<std::vector<std::string>(const std::string& text)> all_gather;
  };
  /// `tensors`: this rank's part. Collective over `ranks`.
  PartCopies(const Ranks& ranks, const std::vector<parallel::StateTensor>& tensors);

  /// Copies the part as it is between two steps. Collective over each copy of the model, and blocking.
  void take(const std::vector<parallel::StateTensor>& tensors, const checkpoint::CheckpointInfo& info);

  /// What is there, nothing that was being copied. Valid until the next take().
  std::vector<HeldPart> held() const;

 private:
  /// How a part lies in one block of memory: what of it is not in the block.
  struct Layout {
    topology::MeshCoordinates where;
    std::vector<parallel::StateTensor> tensors;  // values: meta tensors, for shape and type
    std::int64_t words = 0;                      // of 8 bytes
  };
  struct Copy {
    checkpoint::CheckpointInfo info;  // step 0: none
    at::Tensor own;                   // int64 [words]
    at::Tensor others;
  };
  static Layout layout_of(const topology::MeshCoordinates& where,
                          const std::vector<parallel::StateTensor>& tensors);
  static std::string text_of(const Layout& layout);
  static Layout parse(const std::string& text);
  static std::vector<parallel::StateTensor> views(const Layout& layout, const at::Tensor& block);

  comm::Group& world_;
  int keeper_ = -1;  // rank that keeps this one's part
  int kept_ = -1;    // whose part this one keeps
  Layout own_;
  Layout others_;
  std::array<Copy, 2> copies_;
  std::size_t next_ = 0;
};

}  // namespace dtrain::state
