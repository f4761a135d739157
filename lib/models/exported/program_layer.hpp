#pragma once

#include <c10/util/Exception.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/borrowed_parameter.hpp"
#include "models/compute/sample_tap.hpp"
#include "models/exported/operations/operation.hpp"
#include "models/exported/planning/planned_program.hpp"
#include "models/exported/slicing/sliced_linear.hpp"
#include "models/layer.hpp"
#include "models/layers/word_table.hpp"

namespace dtrain::models::exported {

struct Beside;        // models/exported/slicing/node_search.hpp
struct CutAttention;  // models/exported/slicing/attentions.hpp
struct Cuts;          // models/exported/slicing/cuts.hpp
struct LinearPair;    // models/exported/slicing/linear_pairs.hpp
struct Place;         // models/exported/slicing/node_search.hpp

/// One run of a program's nodes. Its parameters and buffers have the names of the module's state_dict and
/// start as the file has them; a parameter that several runs use belongs to the first of them, and the others
/// borrow it. Between two layers flow all tensors that a later run uses.
class ProgramLayer final : public Layer, public WordTable, public SampleTapped {
 public:
  /// `before`: the layers before this one, which may own what it uses.
  ProgramLayer(std::shared_ptr<const PlannedProgram> planned, std::size_t run,
               const std::vector<std::unique_ptr<Layer>>& before);

  /// Takes in what no run uses, so that a checkpoint has all of the module's state. Before make_operations().
  void add_unused_parameter(const GraphInput& input);
  void add_unused_buffer(const GraphInput& input);
  bool owns_parameter(const std::string& name) const;
  bool owns_buffer(const std::string& name) const;

  /// Cuts attentions and pairs of linear layers (slicing/cuts.hpp); all else is on each rank. Throws Error
  /// (exit code 2) where the program has neither.
  Flow slice(TensorGroup& group, const Flow& flow) override;

  /// After all layers have their parameters and buffers: they stay where they are from now on. `all`: the
  /// program's layers, whose parameters say in which type a layer without any computes.
  void make_operations(const std::vector<std::unique_ptr<Layer>>& all);

  Tensors forward(const Tensors& inputs, const Context& context) override;
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const override;
  Cost cost(const std::vector<Shape>& inputs) const override;
  std::vector<BorrowedParameter*> borrowed() override;
  std::string sample_obstacle() const override;

  /// Of the program's first run, where it takes the mean of words and nothing else uses their table.
  const Parameter* table() const override;
  at::Tensor ids_read(const at::Tensor& input) const override;
  std::int64_t longest() const override;

 private:
  /// A symbol of the sizes, and which dim of which input it is.
  struct Binding {
    std::string symbol;
    std::size_t input;
    std::size_t dim;
  };
  /// A tensor that an operation uses from outside its run.
  struct Used {
    enum class Kind { parameter, borrowed, buffer, constant } kind;
    std::size_t place;
    std::size_t index;  // among parameters_, borrowed_, used_buffers_ or constants_
  };
  /// A buffer that stays as it is, of this layer or one before it.
  struct UsedBuffer {
    const ProgramLayer* owner;
    std::size_t index;    // among its buffers_
    at::ScalarType type;  // that the program has for it
    // A copy for this layer, where the buffer's own type or device is another.
    at::Tensor here = {};
    at::Tensor of = {};
    std::int64_t version = 0;
  };
  /// A constant of the file, in the type and at the place that the last forward pass wanted.
  struct Constant {
    const GraphInput* input;
    at::Tensor value;
  };
  struct Done {
    std::unique_ptr<Operation> operation;
    Step::Copies copies = Step::Copies::never;
    std::vector<std::size_t> written;  // places
    std::vector<std::size_t> ended;    // places that nothing uses behind it
  };

  void slice_pair(const LinearPair& pair, const Cuts& cuts, TensorGroup& group);
  void slice_attention(const CutAttention& attention, const Cuts& cuts, TensorGroup& group);
  void slice_reshapes(const std::vector<Place>& reshapes);
  void slice_splits(const std::vector<Place>& splits);
  void enter_beside(const std::vector<Beside>& all, TensorGroup& group);
  void slice_outputs(const Place& place, const Cuts& cuts, TensorGroup& group, const FeaturePart& part);
  void slice_inputs(const Place& place, TensorGroup& group, const FeaturePart& part);
  void hold_part_of_weight(const Node& linear);
  void hold_part(ValueId value, const PartOfDim& cut);
  bool drops_here(const Place& place) const;
  const Step& step_at(const Place& place) const;

  Error cannot_compute(const Done& done, const std::string& why) const;
  const Run& own_run() const { return planned_->plan.runs[run_]; }
  const Graph& graph() const { return planned_->program.graph(); }
  bool is_last() const { return run_ + 1 == planned_->plan.runs.size(); }
  std::vector<Flowing> outputs() const;
  /// Whether it is a view of a parameter, whose memory a sharded run takes away behind this layer.
  bool lies_in_parameter(const at::Tensor& tensor) const;
  Scope scope();
  std::size_t place_of(ValueId value);
  void take_parameter(const GraphInput& input, const std::vector<std::unique_ptr<Layer>>& before);
  void take_buffer(const GraphInput& input, const std::vector<std::unique_ptr<Layer>>& before);
  Parameter make_parameter(const GraphInput& input) const;
  Buffer make_buffer(const GraphInput& input, Buffer::Update update) const;
  void find_bindings();
  Symbols symbols_of(std::vector<Shape> inputs) const;
  /// How many words a batch of texts is shorter than the length that the program was exported for.
  std::int64_t missing_words(std::size_t index, at::IntArrayRef given) const;
  Shape shape_of(ValueId value, const Symbols& symbols) const;
  /// By how many elements the gradients of what a step takes and gives exceed those of the layer's.
  double largest_inside(const std::vector<Shape>& inputs,
                        const std::function<Shape(ValueId)>& shape_of) const;
  void check_input(std::size_t index, const Shape& given, const Symbols& symbols) const;
  at::ScalarType type_of(const Tensors& inputs) const;
  void enter(Workspace& work, const Tensors& inputs);
  const at::Tensor& value_of(UsedBuffer& use, const Workspace& work) const;
  const at::Tensor& constant(Constant& which, const Workspace& work) const;
  void count_batches();
  Parameter* parameter_of(ValueId value);
  Parameter* exclusive_parameter(ValueId value);
  Buffer* buffer_of(ValueId value);

  std::shared_ptr<const PlannedProgram> planned_;
  std::size_t run_;
  std::vector<BorrowedParameter> borrowed_;
  std::vector<UsedBuffer> used_buffers_;
  std::vector<const Layer*> all_;  // layers of the program, where this one has no parameters
  std::vector<Constant> constants_;
  std::vector<Used> used_;
  std::map<ValueId, std::size_t> places_;
  std::vector<Binding> bindings_;
  std::vector<Done> done_;
  std::map<ValueId, PartOfDim> sliced_;  // of what is cut over a tensor axis, on this rank
  std::vector<ValueId> entered_;         // whose gradients the ranks of that axis add up
  std::vector<ValueId> left_;            // whose values they do
};

/// Whether there was no memory, or a device failed: no fault of the program.
bool is_of_the_machine(const c10::Error& error);

}  // namespace dtrain::models::exported
