#include "support/guarded_device.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "core/clock.hpp"

namespace dtrain {
namespace {

GuardedWork* captured = nullptr;

/// All of the device's memory: who may touch it, and how many do.
class Memory {
 public:
  static Memory& all() {
    static Memory memory;
    return memory;
  }

  void* allocate(std::size_t bytes) {
    TORCH_CHECK_WITH(OutOfMemoryError, bytes_ + static_cast<long long>(bytes) <= limit_,
                     "guarded: out of memory. Tried to allocate ", bytes, " bytes beside ", bytes_, " of ",
                     limit_, ".");
    void* data = mmap(nullptr, pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    const std::lock_guard lock(mutex_);
    blocks_[data] = {bytes, 0, captured != nullptr};
    bytes_ += static_cast<long long>(bytes);
    peak_ = std::max(peak_, bytes_);
    return data;
  }

  void release(void* data) {
    const std::lock_guard lock(mutex_);
    const auto place = blocks_.find(data);
    if (place == blocks_.end() || place->second.of_graph) return;
    munmap(data, pages(place->second.bytes));
    bytes_ -= static_cast<long long>(place->second.bytes);
    blocks_.erase(place);
  }

  long long peak() const { return peak_; }
  void open(void* data) { change(data, 1); }
  void close(void* data) { change(data, -1); }

 private:
  struct Block {
    std::size_t bytes = 0;
    int users = 0;
    bool of_graph = false;  // stays, for the graph goes on using it
  };
  static std::size_t pages(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

  void change(void* data, int by) {
    const std::lock_guard lock(mutex_);
    auto place = blocks_.upper_bound(data);
    if (place == blocks_.begin()) return;
    --place;  // the last that begins at `data` or before
    auto& [begin, block] = *place;
    if (data >= static_cast<std::byte*>(begin) + block.bytes) return;
    block.users += by;
    mprotect(begin, pages(block.bytes), block.users > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  }

  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  long long bytes_ = 0;
  long long peak_ = 0;
  const long long limit_ = [] {
    const char* const given = std::getenv("DTRAIN_GUARDED_BYTES");
    return given != nullptr ? std::atoll(given) : std::numeric_limits<long long>::max();
  }();
};

struct GuardedAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = bytes == 0 ? nullptr : Memory::all().allocate(bytes);
    return {data, data, [](void* block) { Memory::all().release(block); }, kGuarded};
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].peak = Memory::all().peak();
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override {}
  void copy_data(void* /*to*/, const void* /*from*/, std::size_t /*bytes*/) const override { std::abort(); }
};

GuardedAllocator& allocator() {
  static GuardedAllocator the_one;
  return the_one;
}

constexpr c10::DispatchKeySet kKeys{c10::DispatchKey::PrivateUse1};

thread_local int within = 0;  // an operation, which makes use of others

struct Within {
  Within() { ++within; }
  ~Within() { --within; }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
};

bool captures() { return captured != nullptr && within == 0; }

/// How often the CPU has waited for the device.
class Waits {
 public:
  ~Waits() {
    const char* const file = std::getenv("DTRAIN_DEVICE_WAITS");
    if (file != nullptr) std::ofstream(file, std::ios::app) << count_ << '\n';
  }
  void add() {
    if (within > 0) return;
    TORCH_CHECK(captured == nullptr, "operation not permitted when stream is capturing");
    ++count_;
  }

 private:
  long count_ = 0;
};

Waits& waits() {
  static Waits all;
  return all;
}

/// A tensor as one of the CPU over the same memory, which is open as long as this lives.
class Opened {
 public:
  explicit Opened(const at::Tensor& tensor)
      : block_(tensor.is_cpu() ? nullptr : tensor.storage().mutable_data()) {
    if (block_ != nullptr) Memory::all().open(block_);
    const auto options = at::TensorOptions().dtype(tensor.dtype());
    values = tensor.is_cpu() ? tensor
                             : at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options);
  }
  ~Opened() {
    if (block_ != nullptr) Memory::all().close(block_);
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
  return at::detail::empty_generic(sizes, &allocator(), kKeys, type.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                         std::optional<bool> /*pinned*/) {
  return at::detail::empty_strided_generic(sizes, strides, &allocator(), kKeys, type.value_or(at::kFloat));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.is_cpu() || (from.is_cpu() && (!non_blocking || captured != nullptr))) waits().add();
  if (captures()) {
    captured->emplace_back([from, to] { copy_from(from, to, true); });
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
    self.storage().set_data_ptr_noswap(allocator().allocate(bytes));
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
  if (later) captured->emplace_back(filled_again(made, make));
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
  captured->emplace_back([operation, arguments, returned] {
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

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
  c10::Device exchangeDevice(c10::Device) const override { return kGuarded; }
  c10::Device getDevice() const override { return kGuarded; }
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kGuarded);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, kGuarded, 1);
  }
  c10::Stream exchangeStream(c10::Stream) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, kGuarded);
  }
  // All is done at once, so an event is the time at which it was recorded.
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new std::int64_t;
    *static_cast<std::int64_t*>(*event) = steady_ns();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<std::int64_t*>(event);
  }
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void* begin, void* end, c10::DeviceIndex) const override {
    return static_cast<double>(*static_cast<std::int64_t*>(end) - *static_cast<std::int64_t*>(begin)) * 1e-6;
  }
  void block(void*, const c10::Stream&) const override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const at::Generator generator = at::detail::createCPUGenerator();  // nothing draws from it
    return generator;
  }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
};

[[maybe_unused]] const bool kHasHooks = [] {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  c10::SetAllocator(c10::DeviceType::PrivateUse1, &allocator());
  c10::register_privateuse1_backend("guarded");
  return true;
}();

}  // namespace

void* guarded_allocate(std::size_t bytes) { return Memory::all().allocate(bytes); }
void guarded_release(void* data) { Memory::all().release(data); }

void guarded_capture(GuardedWork* into) { captured = into; }

void guarded_do(std::function<void()> work) {
  captured != nullptr ? captured->push_back(std::move(work)) : work();
}

void guarded_copy(void* to, const void* from, std::size_t bytes) {
  auto& memory = Memory::all();
  void* const source = const_cast<void*>(from);  // opened, not written to
  memory.open(to);
  memory.open(source);
  std::memcpy(to, from, bytes);
  memory.close(source);
  memory.close(to);
}

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

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
