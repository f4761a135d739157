#include "models/exported/operations/masks.hpp"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "kernels/philox.hpp"
#include "models/layers/dropout.hpp"

namespace dtrain::models::exported {
namespace {

class DropoutOperation final : public Operation {
 public:
  DropoutOperation(const Given& given, const char* input, bool keeps_strides, const Flow& flow)
      : from_(given.needed_place(input)),
        to_(given.result()),
        p_(given.probability("p")),
        stream_(stream_of(given.node)),
        keeps_strides_(keeps_strides),
        flow_(flow) {}
  void run(Workspace& work) override {
    const at::Tensor& input = work.tensors[from_];
    at::Tensor made = dropped(input, p_, work.context, stream_, flow_);
    if (keeps_strides_ && made.strides() != input.strides()) made = at::empty_like(input).copy_(made);
    work.tensors[to_] = made;
  }

 private:
  std::size_t from_, to_;
  double p_;
  std::uint32_t stream_;
  bool keeps_strides_;  // as PyTorch does: whether what follows is a view or a copy depends on it
  Flow flow_;
};

}  // namespace

at::Tensor dropped(const at::Tensor& x, double p, const Context& context, std::uint32_t stream,
                   const Flow& flow) {
  if (context.mode == Mode::evaluation || p == 0.0) return x;
  if (p == 1.0) return x * 0;
  return dropout(x, p, context.dropout_key(stream), flow);
}

std::unique_ptr<Operation> dropout_operation(const Given& given, const char* input, bool keeps_strides,
                                             const Flow& flow) {
  return std::make_unique<DropoutOperation>(given, input, keeps_strides, flow);
}

std::uint32_t stream_of(const Node& node, const std::string& part) {
  return kernels::stream_of(fmt::format("{}.{}{}", node.module, node.name, part));
}

}  // namespace dtrain::models::exported
