#include "plan/volumes.hpp"

#include <map>
#include <set>
#include <utility>

#include "models/shape.hpp"
#include "models/slicing/slices.hpp"
#include "models/slicing/tensor_group.hpp"
#include "parallel/tensor/tensor_ranks.hpp"

namespace dtrain::plan {
namespace {

/// Bytes of all gradients, those counted once for each rank of a tensor group that it has in common.
double gradient_bytes(const models::Model& model, int tensor, double element) {
  double elements = 0;
  for (const auto& layer : model.layers()) {
    for (const auto& parameter : layer->parameters()) {
      if (parameter.frozen) continue;
      elements += models::whole_elements(parameter) * (parameter.slice != nullptr ? 1 : tensor);
    }
  }
  return elements * element;
}

/// Elements of what flows from one rank of a pipeline to another, for each such pair.
std::map<std::pair<int, int>, double> crossing_elements(const models::Model& model,
                                                        const parallel::StageCuts& cuts,
                                                        std::vector<models::Shape> shapes) {
  std::map<std::pair<int, int>, double> elements;
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    const int here = cuts.rank_of(cuts.stage_of(i));
    const int before = i == 0 ? here : cuts.rank_of(cuts.stage_of(i - 1));
    if (here != before) {
      for (const auto& shape : shapes) elements[{before, here}] += models::element_count(shape);
    }
    shapes = model.layers()[i]->output_shapes(shapes);
  }
  return elements;
}

/// How the groups along an axis lie on nodes.
struct Spread {
  int groups = 0;
  double in_nodes = 0;  ///< Ranks beyond the first one of a group on a node, over all groups.
  double between = 0;   ///< Nodes beyond the first one of a group, likewise.
};

Spread spread_of(const topology::Cluster& cluster, const topology::Mesh& mesh, topology::Axis axis) {
  Spread found;
  for (const auto& place : cluster.ranks) {
    const auto where = mesh.coordinates(place.rank);
    if ((axis == topology::Axis::data ? where.data : where.tensor) != 0) continue;  // one for each group
    const auto group = mesh.group(place.rank, axis);
    std::set<int> nodes;
    for (const int rank : group) nodes.insert(cluster.ranks[static_cast<std::size_t>(rank)].node);
    ++found.groups;
    found.in_nodes += static_cast<double>(group.size() - nodes.size());
    found.between += static_cast<double>(nodes.size() - 1);
  }
  return found;
}

/// Of sums over the groups along an axis. `bytes`: of all groups together, each of which has its part.
Volume summed(topology::Axis axis, const char* what, double bytes, const Spread& spread,
              double times_in_a_node) {
  const double of_group = bytes / spread.groups;
  const double between = 2 * of_group * spread.between;
  return {.axis = axis,
          .what = what,
          .bytes = times_in_a_node * of_group * spread.in_nodes + between,
          .bytes_between_nodes = between};
}

Volume passed_on(const topology::Cluster& cluster, const topology::Mesh& mesh, const models::Model& model,
                 const parallel::StageCuts& cuts, double element_bytes,
                 const std::vector<models::Shape>& inputs) {
  Volume volume{.axis = topology::Axis::pipe, .what = "activations and their gradients on the pipe axis"};
  const auto& shape = mesh.shape();
  const auto node_of = [&](topology::MeshCoordinates where) {
    return cluster.ranks[static_cast<std::size_t>(mesh.rank_at(where))].node;
  };
  for (const auto& [ranks, elements] : crossing_elements(model, cuts, inputs)) {
    const double bytes = 2 * elements * element_bytes / shape.data;  // of one copy, there and back
    for (topology::MeshCoordinates from; from.data < shape.data; ++from.data) {
      for (from.tensor = 0; from.tensor < shape.tensor; ++from.tensor) {
        topology::MeshCoordinates to = from;
        from.pipe = ranks.first;
        to.pipe = ranks.second;
        volume.bytes += bytes;
        if (node_of(from) != node_of(to)) volume.bytes_between_nodes += bytes;
      }
    }
  }
  return volume;
}

}  // namespace

std::vector<Volume> step_volumes(const topology::Cluster& cluster, const topology::Mesh& mesh,
                                 const models::Model& model, const parallel::StageCuts& cuts,
                                 const Footprint& footprint, const std::vector<models::Shape>& inputs) {
  using topology::Axis;
  const auto& shape = mesh.shape();
  const double element = footprint.element_bytes;
  std::vector<Volume> volumes;
  if (shape.data > 1) {
    volumes.push_back(summed(Axis::data, "gradients on the data axis",
                             gradient_bytes(model, shape.tensor, element),
                             spread_of(cluster, mesh, Axis::data), footprint.block_ranks > 1 ? 1 : 2));
  }
  if (shape.pipe > 1) volumes.push_back(passed_on(cluster, mesh, model, cuts, element, inputs));
  if (shape.tensor > 1) {
    volumes.push_back(summed(Axis::tensor, "sums of slices on the tensor axis",
                             parallel::bytes_of_sums(model, inputs) * element / 4,
                             spread_of(cluster, mesh, Axis::tensor), 2));
  }
  return volumes;
}

}  // namespace dtrain::plan
