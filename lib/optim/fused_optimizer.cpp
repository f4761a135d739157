#include "optim/fused_optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <variant>

#include "kernels/device_kernels.hpp"

namespace dtrain::optim {
namespace {

using Tensors = std::vector<at::Tensor>;

class FusedOptimizer final : public Optimizer {
 public:
  FusedOptimizer(OptimizerConfig config, const std::vector<ParameterRange>& ranges,
                 const at::TensorOptions& options, const StateAllocator& allocate, HeldRanges held)
      : config_(std::move(config)),
        held_(std::move(held)),
        type_(c10::typeMetaToScalarType(options.dtype())),
        on_host_(config_.state_on_host() && !options.device().is_cpu()) {
    for (const ParameterRange& range : ranges) add(ranges_[range.weight_decay], {range.begin, range.end});
    const std::vector<std::string> names = config_.name == "sgd"
                                               ? std::vector<std::string>{"momentum_buffer"}
                                               : std::vector<std::string>{"exp_avg", "exp_avg_sq"};
    const auto own = on_host_ ? at::TensorOptions(options.dtype()).pinned_memory(options.device().is_cuda())
                              : options.requires_grad(false);
    for (int i = 0; i < config_.state_count(); ++i) {
      state_.push_back({names[static_cast<std::size_t>(i)],
                        allocate && !on_host_ ? allocate(held_.count()) : at::zeros({held_.count()}, own)});
    }
  }

  void step(const at::Tensor& parameters, const at::Tensor& gradients, double scale, double learning_rate,
            std::int64_t step, const std::vector<Range>& parts) override {
    const at::NoGradGuard no_grad;
    if (copy_.defined()) {
      kernels::UpdateDecision decided{
          .scale = static_cast<float>(scale), .applies = 1, .count = step, .learning_rate = learning_rate};
      kernels::round_for_devices(decided);
      const auto decision = bytes_on(parameters.device(), &decided, sizeof decided);
      return step_by_own_kernel(parameters, gradients, decision, parts);
    }
    const auto number = parameters.options().dtype(at::kFloat).requires_grad(false);
    const bool exact = type_ == at::kDouble;  // LibTorch's divisor is a float all the same
    if (exact && scale != 1.0)
      for (at::Tensor& sum : views(gradients, parts)) sum.mul_(scale);
    // A float's rate is rounded as where a device reads it.
    const Numbers numbers{
        .divisor = at::full({}, exact ? 1.0 : 1.0 / scale, number),
        .count = at::full({}, static_cast<double>(step), number),
        .rate = exact ? learning_rate : static_cast<double>(static_cast<float>(learning_rate))};
    step_by_library(parameters, gradients, numbers, parts);
  }

  bool takes_decisions() const override {
    return !on_host_ && type_ == at::kFloat && kernels::device_kernels() != nullptr &&
           kernels::device_kernels()->fused() != nullptr;
  }

  void step_as_decided(const at::Tensor& parameters, const at::Tensor& gradients, const at::Tensor& decision,
                       const std::vector<Range>& parts) override {
    const at::NoGradGuard no_grad;
    if (copy_.defined()) return step_by_own_kernel(parameters, gradients, decision, parts);
    const auto field = [&](std::size_t offset) {
      return decision.narrow(0, static_cast<std::int64_t>(offset), sizeof(float)).view(at::kFloat).squeeze(0);
    };
    using kernels::UpdateDecision;
    const Numbers numbers{.divisor = field(offsetof(UpdateDecision, divisor)),
                          .count = field(offsetof(UpdateDecision, updates)),
                          .rate = field(offsetof(UpdateDecision, rate)),
                          .skips = field(offsetof(UpdateDecision, skips))};
    step_by_library(parameters, gradients, numbers, parts);
  }

  /// By dtrain's own kernel, for adam in float where the device has it.
  bool write_copy_to(const at::Tensor& copy) override {
    const auto* const kernels = kernels::device_kernels();
    const bool half = copy.scalar_type() == at::kBFloat16 || copy.scalar_type() == at::kHalf;
    if (on_host_ || !half || !config_.adaptive() || kernels == nullptr || kernels->fused() == nullptr)
      return false;
    if (state_.front().value.scalar_type() != at::kFloat) return false;
    copy_ = copy;
    return true;
  }

  /// Waits until state that lies in the host's memory is back there.
  const std::vector<OptimizerState>& state() const override {
    if (last_.defined()) std::exchange(last_, {}).cpu();
    return state_;
  }

 private:
  /// What LibTorch's fused updates take, in float, as they want it.
  struct Numbers {
    at::Tensor divisor;                     // of the gradients
    at::Tensor count;                       // of updates, with this one; adam alone reads it
    std::variant<double, at::Tensor> rate;  // of learning
    at::Tensor skips = {};                  // 1: nothing changes; undefined: 0
  };
  void step_by_library(const at::Tensor& parameters, const at::Tensor& gradients, const Numbers& numbers,
                       const std::vector<Range>& parts) {
    const std::optional<at::Tensor> skips =
        numbers.skips.defined() ? std::optional(numbers.skips) : std::nullopt;
    for (const auto& [weight_decay, ranges] : ranges_) {
      const auto update = [&](const std::vector<Range>& pieces, const std::vector<Tensors>& states) {
        const Tensors values = views(parameters, pieces);
        const Tensors sums = views(gradients, pieces);
        const Tensors counts(pieces.size(), numbers.count);
        const auto by = [&](const auto& rate) {
          if (config_.name == "sgd") {
            at::_fused_sgd_(values, sums, states.empty() ? Tensors() : states[0], weight_decay,
                            config_.momentum, rate, 0.0, config_.nesterov, false, false, numbers.divisor,
                            skips);
          } else if (config_.name == "adamw") {
            at::_fused_adamw_(values, sums, states[0], states[1], {}, counts, rate, config_.beta1,
                              config_.beta2, weight_decay, config_.eps, false, false, numbers.divisor, skips);
          } else {
            at::_fused_adam_(values, sums, states[0], states[1], {}, counts, rate, config_.beta1,
                             config_.beta2, weight_decay, config_.eps, false, false, numbers.divisor, skips);
          }
        };
        std::visit(by, numbers.rate);
      };
      const auto pieces = common(ranges, parts);
      if (pieces.empty()) continue;
      if (on_host_) {
        for (const Range& chunk : chunks_of(pieces, kOffloadedChunk))
          update_from_host(chunk, parameters.device(), update);
      } else {
        update(pieces, states_of(pieces));
      }
    }
    if (on_host_) last_ = numbers.divisor;
  }

  /// `decision`: bytes of a kernels::UpdateDecision on the device.
  void step_by_own_kernel(const at::Tensor& parameters, const at::Tensor& gradients,
                          const at::Tensor& decision, const std::vector<Range>& parts) {
    const auto device = parameters.device();
    void* const stream = device.is_cuda()
                             ? c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle()
                             : nullptr;
    const at::Tensor& chunks = chunks_there(parts, device);
    const kernels::AdamRule rule{.beta1 = static_cast<float>(config_.beta1),
                                 .beta2 = static_cast<float>(config_.beta2),
                                 .eps = static_cast<float>(config_.eps),
                                 .decoupled = config_.name == "adamw"};
    const kernels::AdamMemory memory{
        .values = parameters.data_ptr<float>(),
        .first = state_[0].value.data_ptr<float>(),
        .second = state_[1].value.data_ptr<float>(),
        .gradient = gradients.const_data_ptr<float>(),
        .copy = copy_.data_ptr(),
        .copy_type =
            copy_.scalar_type() == at::kHalf ? kernels::Element::float16 : kernels::Element::bfloat16,
        .chunks = static_cast<const kernels::UpdateChunk*>(chunks.const_data_ptr()),
        .chunk_count = chunks.nbytes() / sizeof(kernels::UpdateChunk)};
    kernels::device_kernels()->fused()->adam(
        memory, rule, static_cast<const kernels::UpdateDecision*>(decision.const_data_ptr()), stream);
  }

  /// The table of what one kernel updates, of whatever weight decay: on the device, made when the parts are
  /// others than before.
  const at::Tensor& chunks_there(const std::vector<Range>& parts, const at::Device& device) {
    const auto same = [](const Range& a, const Range& b) { return a.begin == b.begin && a.end == b.end; };
    if (chunks_.defined() && std::ranges::equal(chunked_parts_, parts, same)) return chunks_;
    std::vector<kernels::UpdateChunk> all;
    for (const auto& [weight_decay, ranges] : ranges_) {
      for (const Range& chunk : chunks_of(common(ranges, parts), kernels::FusedKernels::kUpdateChunk)) {
        all.push_back({.begin = chunk.begin,
                       .place = held_.place_of(chunk),
                       .size = static_cast<std::int32_t>(chunk.size()),
                       .weight_decay = static_cast<float>(weight_decay)});
      }
    }
    chunks_ = bytes_on(device, all.data(), all.size() * sizeof(kernels::UpdateChunk));
    chunked_parts_ = parts;
    return chunks_;
  }

  static at::Tensor bytes_on(const at::Device& device, const void* from, std::size_t bytes) {
    at::Tensor here = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
    if (bytes > 0) std::memcpy(here.data_ptr(), from, bytes);
    return here.to(device, /*non_blocking=*/true);
  }

  static Tensors views(const at::Tensor& flat, const std::vector<Range>& pieces) {
    Tensors all;
    for (const Range& piece : pieces) all.push_back(flat.narrow(0, piece.begin, piece.size()));
    return all;
  }

  /// By state tensor.
  std::vector<Tensors> states_of(const std::vector<Range>& pieces) const {
    std::vector<Range> places;
    for (const Range& piece : pieces) {
      const auto begin = held_.place_of(piece);
      places.push_back({begin, begin + piece.size()});
    }
    std::vector<Tensors> all;
    for (const auto& state : state_) all.push_back(views(state.value, places));
    return all;
  }

  static std::vector<Range> chunks_of(const std::vector<Range>& pieces, std::int64_t longest) {
    std::vector<Range> chunks;
    for (const Range& piece : pieces) {
      for (auto begin = piece.begin; begin < piece.end; begin += longest)
        chunks.push_back({begin, std::min(begin + longest, piece.end)});
    }
    return chunks;
  }

  /// The device does one after the other, so that a chunk's memory serves the next one.
  template <class Update>
  void update_from_host(const Range& chunk, const at::Device& device, const Update& update) const {
    const auto here = states_of({chunk});
    std::vector<Tensors> there;
    for (const auto& state : here) there.push_back({state.front().to(device, /*non_blocking=*/true)});
    update({chunk}, there);
    for (std::size_t i = 0; i < here.size(); ++i) here[i].front().copy_(there[i].front(), true);
  }

  /// Neighbours are one range: each one costs a view of every tensor in every step. Parameters begin at 64
  /// bytes; what lies between is zero in all tensors and stays so.
  static void add(std::vector<Range>& ranges, const Range& next) {
    constexpr std::int64_t kLeastParameter =
        16;  // elements, with what is behind it: a smaller gap holds none
    const bool follows = !ranges.empty() && next.begin >= ranges.back().end &&
                         next.begin - ranges.back().end < kLeastParameter;
    if (follows) {
      ranges.back().end = next.end;
    } else {
      ranges.push_back(next);
    }
  }

  static std::vector<Range> common(const std::vector<Range>& ranges, const std::vector<Range>& parts) {
    std::vector<Range> pieces;
    for (const Range& range : ranges) {
      for (const Range& part : parts) {
        const Range piece{std::max(range.begin, part.begin), std::min(range.end, part.end)};
        if (piece.size() > 0) pieces.push_back(piece);
      }
    }
    return pieces;
  }

  const OptimizerConfig config_;
  const HeldRanges held_;
  const at::ScalarType type_;
  const bool on_host_;       // the state, while the parameters are a device's
  mutable at::Tensor last_;  // of the device: reading it waits for the state; undefined: that is here
  std::map<double, std::vector<Range>> ranges_;  // by weight decay
  at::Tensor copy_;                              // undefined: none is written
  at::Tensor chunks_;                            // bytes of kernels::UpdateChunk, of
  std::vector<Range> chunked_parts_;             // these; undefined: not made yet
};

}  // namespace

std::unique_ptr<Optimizer> make_fused_optimizer(const OptimizerConfig& config,
                                                const std::vector<ParameterRange>& ranges,
                                                const at::TensorOptions& options,
                                                const StateAllocator& allocate, HeldRanges held) {
  return std::make_unique<FusedOptimizer>(config, ranges, options, allocate, std::move(held));
}

}  // namespace dtrain::optim
