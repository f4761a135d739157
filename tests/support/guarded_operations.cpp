#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <tuple>
#include <vector>

#include "support/guarded_memory.hpp"

// What the guarded device computes: each operation on copies in the CPU's memory, at once or when what is
// captured is done.
namespace dtrain {
namespace {

constexpr c10::DispatchKeySet kKeys{c10::DispatchKey::PrivateUse1};

thread_local int within = 0;  // an operation, which makes use of others

struct Within {
  Within() { ++within; }
  ~Within() { --within; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
};

bool captures() { return guarded_captured() != nullptr && within == 0; }

/// How often the CPU has waited for the device.
class Waits {
 public:
  void tell() const {
    const char* const file = std::getenv("DTRAIN_DEVICE_WAITS");
    if (file != nullptr) std::ofstream(file, std::ios::app) << count_ << '\n';
  }
  void add() {
    if (within > 0) return;
    TORCH_CHECK(guarded_captured() == nullptr, "operation not permitted when stream is capturing");
    ++count_;
  }

 private:
  long count_ = 0;
};

Waits& waits() {
  static Waits all;
  static const int told = std::at_quick_exit([] { all.tell(); });  // as app/main.cpp ends
  static_cast<void>(told);
  return all;
}

/// A tensor as one of the CPU over the same memory, which is open as long as this lives.
class Opened {
 public:
  explicit Opened(const at::Tensor& tensor)
      : block_(tensor.is_cpu() ? nullptr : tensor.storage().mutable_data()) {
    if (block_ != nullptr) GuardedMemory::all().open(block_);
    const auto options = at::TensorOptions().dtype(tensor.dtype());
    values = tensor.is_cpu() ? tensor
                             : at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options);
  }
  ~Opened() {
    if (block_ != nullptr) GuardedMemory::all().close(block_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  at::Tensor values;

 private:
  void* block_;
};

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                 std::optional<bool> /*pinned*/, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &guarded_allocator(), kKeys, type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                         std::optional<bool> /*pinned*/) {
  return at::detail::empty_strided_generic(sizes, strides, &guarded_allocator(), kKeys,
                                           type.value_or(at::kFloat));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const bool crosses = to.is_cpu() || from.is_cpu();  // page-locked memory, where the caller does not wait
  if (crosses && (!non_blocking || guarded_captured() != nullptr)) waits().add();
  if (captures()) {
    guarded_captured()->emplace_back([from, to] { copy_from(from, to, true); });
    return to;
  }
  const Within operation;
  const at::NoGradGuard no_grad;
  const Opened source(from);
  const Opened destination(to);
  destination.values.copy_(source.values);
  return to;
}

const at::Tensor& resized(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format) {
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous(sizes);
  if (format && *format != at::MemoryFormat::Preserve) tensor->empty_tensor_restride(*format);
  const std::size_t bytes =
      static_cast<std::size_t>(self.numel() + self.storage_offset()) * self.element_size();
  if (bytes > self.storage().nbytes()) {
    self.storage().set_data_ptr_noswap(guarded_allocator().allocate(bytes));
    self.storage().unsafeGetStorageImpl()->set_nbytes(bytes);
  }
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) resized(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  waits().add();
  const Opened opened(self);
  return opened.values.item();
}

/// Undefined ones too: gradients that nobody wants.
template <class... Made>
auto filled_again(const std::tuple<Made...>& made, const std::function<std::tuple<Made...>()>& make) {
  return [made, make] {
    const Within operation;
    const at::NoGradGuard no_grad;
    const auto again = make();
    const auto put = [](const at::Tensor& to, const at::Tensor& from) {
      if (to.defined()) copy_from(from, to, true);
    };
    [&]<std::size_t... i>(std::index_sequence<i...>) { (put(std::get<i>(made), std::get<i>(again)), ...); }
    (std::index_sequence_for<Made...>{});
  };
}

/// What `make` makes on copies, or will make when what is captured is done.
template <class... Made>
std::tuple<Made...> made_by(const std::function<std::tuple<Made...>()>& make) {
  const bool later = captures();
  const auto made = [&] {
    const Within operation;
    return make();
  }();
  if (later) guarded_captured()->emplace_back(filled_again(made, make));
  return made;
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
                       at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
                       int64_t groups) {
  const auto make = [=, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
                     output_padding = output_padding.vec()] {
    const auto here = bias && bias->defined() ? std::optional(bias->cpu()) : std::nullopt;
    return std::tuple(at::convolution(input.cpu(), weight.cpu(), here, stride, padding, dilation, transposed,
                                      output_padding, groups)
                          .to(kGuarded));
  };
  return std::get<0>(made_by(std::function<std::tuple<at::Tensor>()>(make)));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> wanted) {
  using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  const auto make = [=, stride = stride.vec(), padding = padding.vec(), dilation = dilation.vec(),
                     output_padding = output_padding.vec()] {
    const std::vector<std::int64_t> bias_size = {gradient.size(1)};
    const auto [of_input, of_weight, of_bias] = at::convolution_backward(
        gradient.cpu(), input.cpu(), weight.cpu(), at::OptionalIntArrayRef(bias_size), stride, padding,
        dilation, transposed, output_padding, groups, wanted);
    const auto back = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.to(kGuarded) : tensor;
    };
    return Gradients{back(of_input), back(of_weight), back(of_bias)};
  };
  return made_by(std::function<Gradients()>(make));
}

// What LibTorch takes for one step of an LSTM on devices; gates in the order input, forget, cell, output.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates,
                                                         const at::Tensor& hidden_gates,
                                                         const at::Tensor& before,
                                                         const std::optional<at::Tensor>& input_bias,
                                                         const std::optional<at::Tensor>& hidden_bias) {
  const auto sums = (input_gates + hidden_gates + *input_bias + *hidden_bias).chunk(4, 1);
  const auto input = sums[0].sigmoid();
  const auto forget = sums[1].sigmoid();
  const auto candidate = sums[2].tanh();
  const auto output = sums[3].sigmoid();
  const at::Tensor cell = forget * before + input * candidate;
  return {output * cell.tanh(), cell, at::cat({input, forget, candidate, output}, 1)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const std::optional<at::Tensor>& of_hidden, const std::optional<at::Tensor>& of_cell,
    const at::Tensor& before, const at::Tensor& cell, const at::Tensor& activations, bool /*has_bias*/) {
  const auto known = [&](const std::optional<at::Tensor>& gradient) {
    return gradient && gradient->defined() ? *gradient : at::zeros_like(cell);
  };
  const auto gates = activations.chunk(4, 1);
  const at::Tensor bent = cell.tanh();
  const at::Tensor through = known(of_cell) + known(of_hidden) * gates[3] * (1 - bent * bent);
  const auto sigmoid = [](const at::Tensor& gradient, const at::Tensor& value) {
    return gradient * value * (1 - value);
  };
  const at::Tensor sums =
      at::cat({sigmoid(through * gates[2], gates[0]), sigmoid(through * before, gates[1]),
               through * gates[0] * (1 - gates[2] * gates[2]), sigmoid(known(of_hidden) * bent, gates[3])},
              1);
  return {sums, through * gates[1], sums.sum(0)};
}

int64_t plain_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                        const std::optional<at::Tensor>&, double, bool, std::optional<double>, bool) {
  return 0;  // by products and a softmax
}

using Values = std::vector<at::Tensor>;

/// The tensors among `values`, those in lists too.
Values tensors_of(c10::ArrayRef<c10::IValue> values) {
  Values tensors;
  for (const auto& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (!value.isTensorList()) continue;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
  }
  return tensors;
}

/// Those of the arguments that the operation writes to.
Values changed_by(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments) {
  Values changed;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    for (const auto& tensor : tensors_of(arguments.slice(i, 1))) changed.push_back(tensor);
  }
  return changed;
}

/// Does the operation for the shapes of what it returns, undoes what it changes, and keeps it for later.
void capture(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const auto count = operation.schema().arguments().size();
  const torch::jit::Stack arguments(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  const at::NoGradGuard no_grad;
  const Values changed = changed_by(operation.schema(), arguments);
  Values before;
  for (const auto& tensor : changed) before.push_back(tensor.cpu());
  at::native::cpu_fallback(operation, stack);
  for (std::size_t i = 0; i < changed.size(); ++i) copy_from(before[i], changed[i], true);
  const Values returned = tensors_of(torch::jit::last(*stack, operation.schema().returns().size()));
  for (const auto& tensor : returned) {
    const bool is_new = std::ranges::none_of(changed, [&](const auto& one) { return one.is_same(tensor); });
    if (is_new && tensor.is_floating_point()) tensor.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  guarded_captured()->emplace_back([operation, arguments, returned] {
    const Within same_operation;
    const at::NoGradGuard no_gradient;
    torch::jit::Stack again = arguments;
    at::native::cpu_fallback(operation, &again);
    const Values now = tensors_of(again);
    for (std::size_t i = 0; i < returned.size(); ++i) {
      if (!returned[i].is_same(now[i])) copy_from(now[i], returned[i], true);
    }
  });
}

void on_copies(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const bool later = captures();
  const Within this_operation;
  later ? capture(operation, stack) : at::native::cpu_fallback(operation, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_copies>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(empty));
  library.impl("empty_strided", TORCH_FN(empty_strided));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("resize_", TORCH_FN(resized));
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  library.impl("convolution_overrideable", TORCH_FN(convolution));
  library.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_fused_sdp_choice", TORCH_FN(plain_attention));
}

}  // namespace dtrain
