#include "plan/volumes.hpp"

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

/// Elements of what flows between stages on different ranks.
double crossing_elements(const models::Model& model, const parallel::StageCuts& cuts,
                         std::vector<models::Shape> shapes) {
  double elements = 0;
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    if (i > 0 && cuts.rank_of(cuts.stage_of(i)) != cuts.rank_of(cuts.stage_of(i - 1))) {
      for (const auto& shape : shapes) elements += models::element_count(shape);
    }
    shapes = model.layers()[i]->output_shapes(shapes);
  }
  return elements;
}

}  // namespace

std::vector<Volume> step_volumes(const topology::MeshShape& mesh, const models::Model& model,
                                 const parallel::StageCuts& cuts, double element_bytes,
                                 const std::vector<models::Shape>& inputs) {
  std::vector<Volume> volumes;
  if (mesh.data > 1) {
    volumes.push_back({topology::Axis::data, "gradients on the data axis",
                       (mesh.data - 1) * gradient_bytes(model, mesh.tensor, element_bytes)});
  }
  if (mesh.pipe > 1) {
    volumes.push_back({topology::Axis::pipe, "activations and their gradients on the pipe axis",
                       2.0 * mesh.tensor * crossing_elements(model, cuts, inputs) * element_bytes});
  }
  if (mesh.tensor > 1) {
    volumes.push_back({topology::Axis::tensor, "sums of slices on the tensor axis",
                       2.0 * (mesh.tensor - 1) * parallel::bytes_of_sums(model, inputs) * element_bytes / 4});
  }
  return volumes;
}

}  // namespace dtrain::plan
