#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/exported/archive.hpp"
#include "models/exported/graph.hpp"

namespace dtrain::models::exported {

/// Where a tensor of the file lies.
struct StoredTensor {
  std::string record;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;  ///< Elements before the first one.
  bool requires_grad = true;

  bool same_memory(const StoredTensor& other) const;  ///< The same elements of the same record.
};

/// A program that torch.export.save wrote: its graph, and its tensors, which are read one by one when they
/// are wanted.
class Program {
 public:
  /// Throws Error: exit code 4 for a damaged file, 2 for one that cannot be trained.
  explicit Program(const std::string& file);

  const std::string& file() const { return archive_.file(); }
  const Archive& archive() const { return archive_; }
  const Graph& graph() const { return graph_; }
  /// Whether the file says that it was exported in training mode: parts that are not stay as they are.
  bool was_in_training() const { return was_in_training_; }
  /// False of what save_without_weights() wrote.
  bool has_weights() const { return has_weights_; }
  /// The floating type of its parameters: a run computes in its own type instead.
  at::ScalarType type() const { return type_; }

  /// A tensor of the state_dict, or of the constants where it is not part of that. Throws Error (exit code
  /// 4).
  const StoredTensor& find(const GraphInput& input) const;
  /// Reads it whole, row-major, on the CPU. Of a file without weights: zeros.
  at::Tensor read(const GraphInput& input) const;
  /// The name under which a parameter is trained: of several that are one tensor (tied weights) the first.
  const std::string& first_name(const std::string& parameter) const { return first_names_.at(parameter); }

  /// SHA-256 of the tensors that are not of the state_dict; empty where there are none.
  std::string constants_hash() const;

  /// Writes the file again without what is trained, the examples and the golden batch. Throws Error.
  void save_without_weights(const std::string& file) const;

  /// Does `action`; what it throws of this file becomes an Error that names it.
  void understand(const std::function<void()>& action) const;

 private:
  void read_tensors(const std::string& config, std::map<std::string, StoredTensor>& into) const;
  void check_tensors();
  void find_tied();

  Archive archive_;
  Graph graph_;
  at::ScalarType type_ = at::kFloat;
  bool has_weights_ = true;
  bool was_in_training_ = false;
  std::map<std::string, StoredTensor> weights_;
  std::map<std::string, StoredTensor> constants_;
  std::map<std::string, std::string> first_names_;
};

}  // namespace dtrain::models::exported
