// The kernels of a GPU for the guarded device (guarded_device.hpp): their twins, on copies in the CPU's
// memory. What is handed over to them must lie on the device.
#include <cstddef>
#include <cstring>
#include <vector>

#include "core/error.hpp"
#include "kernels/device_kernels.hpp"
#include "support/guarded_device.hpp"

namespace dtrain {
namespace {

using kernels::Element;

/// A part of the device's memory, to be read.
template <class T>
std::vector<T> read(const void* from, std::size_t count) {
  std::vector<T> values(count);
  guarded_copy(values.data(), from, count * sizeof(T));
  return values;
}

/// A part of the device's memory that a twin changes: copied there and back.
template <class T>
class Copied {
 public:
  Copied(T* on_device, std::size_t count) : on_device_(on_device), values_(read<T>(on_device, count)) {}
  ~Copied() { guarded_copy(on_device_, values_.data(), values_.size() * sizeof(T)); }
  Copied(const Copied&) = delete;
  Copied& operator=(const Copied&) = delete;
  T* data() { return values_.data(); }

 private:
  T* on_device_;
  std::vector<T> values_;
};

std::size_t bytes_of(Element type) { return type == Element::float32 ? 4 : 2; }

/// What a batch norm has for each channel, copied there and back.
struct NormHere {
  explicit NormHere(const kernels::ChannelNorm& there)
      : norm(there),
        weight(read<float>(there.weight, there.channels)),
        bias(read<float>(there.bias, there.channels)),
        mean(there.mean, there.channels),
        inverse_deviation(there.inverse_deviation, there.channels),
        scale(there.scale, there.channels),
        shift(there.shift, there.channels),
        partial(there.partial, kernels::FusedKernels::kStatisticParts * 2 * there.channels) {
    norm.weight = weight.data();
    norm.bias = bias.data();
    norm.mean = mean.data();
    norm.inverse_deviation = inverse_deviation.data();
    norm.scale = scale.data();
    norm.shift = shift.data();
    norm.partial = partial.data();
  }
  kernels::ChannelNorm norm;
  std::vector<float> weight, bias;
  Copied<double> mean, inverse_deviation;
  Copied<float> scale, shift;
  Copied<double> partial;
};

class GuardedFusedKernels final : public kernels::FusedKernels {
 public:
  void token_loss(float* losses, float* log_sums, const void* logits, Element type,
                  const std::int64_t* targets, const kernels::TokenRows& rows, Stream stream) const override {
    guarded_do([=, this] {
      Copied losses_here(losses, rows.rows);
      Copied sums_here(log_sums, rows.rows);
      cpu_.token_loss(losses_here.data(), sums_here.data(),
                      read<std::byte>(logits, rows.rows * rows.stride * bytes_of(type)).data(), type,
                      read<std::int64_t>(targets, rows.rows).data(), rows, stream);
    });
  }
  void token_loss_gradient(void* logits, Element type, const float* log_sums, const std::int64_t* targets,
                           const float* factor, const kernels::TokenRows& rows,
                           Stream stream) const override {
    guarded_do([=, this] {
      Copied logits_here(static_cast<std::byte*>(logits), rows.rows * rows.stride * bytes_of(type));
      cpu_.token_loss_gradient(logits_here.data(), type, read<float>(log_sums, rows.rows).data(),
                               read<std::int64_t>(targets, rows.rows).data(), read<float>(factor, 1).data(),
                               rows, stream);
    });
  }
  void token_loss_with_gradient(float* losses, void* logits, Element type, const std::int64_t* targets,
                                const kernels::TokenRows& rows, Stream stream) const override {
    guarded_do([=, this] {
      Copied losses_here(losses, rows.rows);
      Copied logits_here(static_cast<std::byte*>(logits), rows.rows * rows.stride * bytes_of(type));
      cpu_.token_loss_with_gradient(losses_here.data(), logits_here.data(), type,
                                    read<std::int64_t>(targets, rows.rows).data(), rows, stream);
    });
  }
  void column_sums(float* sums, float* /*partial*/, const void* values, Element type, std::size_t rows,
                   std::size_t columns, Stream stream) const override {
    guarded_do([=, this] {
      Copied sums_here(sums, columns);
      cpu_.column_sums(sums_here.data(), nullptr,
                       read<std::byte>(values, rows * columns * bytes_of(type)).data(), type, rows, columns,
                       stream);
    });
  }
  void residual_norm(float* sum, void* normed, Element type, float* means, float* deviations,
                     const float* input, const void* branch, Element branch_type, const float* weight,
                     const float* bias, const kernels::NormRows& rows, Stream stream) const override {
    guarded_do([=, this] {
      const std::size_t count = rows.rows * rows.width;
      const auto branch_here = branch != nullptr ? read<std::byte>(branch, count * bytes_of(branch_type))
                                                 : std::vector<std::byte>();
      Copied sum_here(sum, branch != nullptr ? count : 0);
      Copied normed_here(static_cast<std::byte*>(normed), rows.rows * rows.width * bytes_of(type));
      Copied means_here(means, rows.rows);
      Copied deviations_here(deviations, rows.rows);
      cpu_.residual_norm(sum_here.data(), normed_here.data(), type, means_here.data(), deviations_here.data(),
                         read<float>(input, count).data(), branch != nullptr ? branch_here.data() : nullptr,
                         branch_type, read<float>(weight, rows.width).data(),
                         read<float>(bias, rows.width).data(), rows, stream);
    });
  }
  void residual_norm_gradient(const kernels::NormGradients& to, const float* passed, const void* of_normed,
                              Element type, const float* sum, const float* weight, const float* means,
                              const float* deviations, const kernels::NormRows& rows,
                              Stream stream) const override {
    guarded_do([=, this] {
      const std::size_t count = rows.rows * rows.width;
      Copied gradient_here(to.of_sum, count);
      Copied branch_here(static_cast<std::byte*>(to.of_branch),
                         to.of_branch != nullptr ? count * bytes_of(type) : 0);
      Copied weight_here(to.of_weight, rows.width);
      Copied bias_here(to.of_bias, rows.width);
      Copied partial_here(to.partial, kPartialRows * 2 * rows.width);
      const auto passed_here = passed != nullptr ? read<float>(passed, count) : std::vector<float>();
      cpu_.residual_norm_gradient({.of_sum = gradient_here.data(),
                                   .of_branch = to.of_branch != nullptr ? branch_here.data() : nullptr,
                                   .of_weight = weight_here.data(),
                                   .of_bias = bias_here.data(),
                                   .partial = partial_here.data()},
                                  passed != nullptr ? passed_here.data() : nullptr,
                                  read<std::byte>(of_normed, count * bytes_of(type)).data(), type,
                                  read<float>(sum, count).data(), read<float>(weight, rows.width).data(),
                                  read<float>(means, rows.rows).data(),
                                  read<float>(deviations, rows.rows).data(), rows, stream);
    });
  }
  void max_pool(void* out, std::uint8_t* which, const void* input, Element type,
                const kernels::PoolSize& size, std::size_t inner, Stream stream) const override {
    guarded_do([=, this] {
      const std::size_t windows = size.planes * (size.height / 2) * (size.width / 2) * inner;
      Copied out_here(static_cast<std::byte*>(out), windows * bytes_of(type));
      Copied which_here(which, windows);
      const auto images =
          read<std::byte>(input, size.planes * size.height * size.width * inner * bytes_of(type));
      cpu_.max_pool(out_here.data(), which_here.data(), images.data(), type, size, inner, stream);
    });
  }
  void max_pool_gradient(void* input_gradient, const void* gradient, const std::uint8_t* which, Element type,
                         const kernels::PoolSize& size, std::size_t inner, Stream stream) const override {
    guarded_do([=, this] {
      const std::size_t windows = size.planes * (size.height / 2) * (size.width / 2) * inner;
      Copied images(static_cast<std::byte*>(input_gradient),
                    size.planes * size.height * size.width * inner * bytes_of(type));
      cpu_.max_pool_gradient(images.data(), read<std::byte>(gradient, windows * bytes_of(type)).data(),
                             read<std::uint8_t>(which, windows).data(), type, size, inner, stream);
    });
  }
  void batch_norm(void* output, const void* x, const void* residual, const kernels::ChannelNorm& norm,
                  const kernels::StepMoments& step, Stream stream) const override {
    guarded_do([=, this] {
      const std::size_t bytes = norm.rows * norm.channels * bytes_of(norm.type);
      NormHere here(norm);
      Copied output_here(static_cast<std::byte*>(output), bytes);
      Copied mean_here(step.mean, step.mean != nullptr ? norm.channels : 0);
      Copied variance_here(step.variance, step.mean != nullptr ? norm.channels : 0);
      const auto beside = residual != nullptr ? read<std::byte>(residual, bytes) : std::vector<std::byte>();
      auto step_here = step;
      if (step.mean != nullptr) {
        step_here.mean = mean_here.data();
        step_here.variance = variance_here.data();
      }
      cpu_.batch_norm(output_here.data(), read<std::byte>(x, bytes).data(),
                      residual != nullptr ? beside.data() : nullptr, here.norm, step_here, stream);
    });
  }
  void batch_norm_gradient(const kernels::ChannelNormGradient& gradient, const kernels::ChannelNorm& norm,
                           Stream stream) const override {
    guarded_do([=, this] {
      const std::size_t bytes = norm.rows * norm.channels * bytes_of(norm.type);
      NormHere here(norm);
      Copied of_x(static_cast<std::byte*>(gradient.of_x), bytes);
      Copied of_residual(static_cast<std::byte*>(gradient.of_residual),
                         gradient.of_residual != nullptr ? bytes : 0);
      Copied of_weight(gradient.of_weight, norm.channels);
      Copied of_bias(gradient.of_bias, norm.channels);
      Copied factors(gradient.factors, 3 * norm.channels);
      const auto seen =
          gradient.output != nullptr ? read<std::byte>(gradient.output, bytes) : std::vector<std::byte>();
      cpu_.batch_norm_gradient({.of_x = of_x.data(),
                                .of_residual = gradient.of_residual != nullptr ? of_residual.data() : nullptr,
                                .of_weight = of_weight.data(),
                                .of_bias = of_bias.data(),
                                .factors = factors.data(),
                                .of_output = read<std::byte>(gradient.of_output, bytes).data(),
                                .x = read<std::byte>(gradient.x, bytes).data(),
                                .output = gradient.output != nullptr ? seen.data() : nullptr},
                               here.norm, stream);
    });
  }
  void decide(kernels::UpdateDecision* decision, const kernels::SumOfSquares* squares, double clip,
              const kernels::UpdateInputs* inputs, Stream stream) const override {
    guarded_do([=, this] {
      Copied decision_here(decision, 1);
      cpu_.decide(decision_here.data(), read<kernels::SumOfSquares>(squares, 1).data(), clip,
                  read<kernels::UpdateInputs>(inputs, 1).data(), stream);
    });
  }
  void adam(const kernels::AdamMemory& memory, const kernels::AdamRule& rule,
            const kernels::UpdateDecision* decision, Stream stream) const override {
    guarded_do([=, this] {
      const auto decided = read<kernels::UpdateDecision>(decision, 1);
      for (const auto& chunk : read<kernels::UpdateChunk>(memory.chunks, memory.chunk_count)) {
        const auto n = static_cast<std::size_t>(chunk.size);
        const std::size_t half = bytes_of(memory.copy_type);
        Copied values(memory.values + chunk.begin, n);
        Copied first(memory.first + chunk.place, n);
        Copied second(memory.second + chunk.place, n);
        auto* const copy_there = static_cast<std::byte*>(memory.copy);
        Copied copy(
            copy_there != nullptr ? copy_there + chunk.begin * static_cast<std::int64_t>(half) : nullptr,
            copy_there != nullptr ? n * half : 0);
        const kernels::UpdateChunk here{.size = chunk.size, .weight_decay = chunk.weight_decay};
        cpu_.adam({.values = values.data(),
                   .first = first.data(),
                   .second = second.data(),
                   .gradient = read<float>(memory.gradient + chunk.begin, n).data(),
                   .copy = copy_there != nullptr ? copy.data() : nullptr,
                   .copy_type = memory.copy_type,
                   .chunks = &here,
                   .chunk_count = 1},
                  rule, decided.data(), stream);
      }
    });
  }

 private:
  const kernels::FusedKernels& cpu_ = kernels::fused_kernels_of_cpu();
};

class GuardedKernels final : public kernels::DeviceKernels {
 public:
  const kernels::FusedKernels* fused() const override { return &fused_; }
  void prepare_images(void* out, Element type, const std::uint8_t* bytes, std::size_t images,
                      const kernels::ImageBatch& batch, Stream /*stream*/) const override {
    require_float(type);
    const auto& shape = batch.shape;
    const auto stored = read<std::uint8_t>(bytes, images * shape.channels * shape.height * shape.width);
    std::vector<float> made(stored.size());
    kernels::prepare_images(made.data(), stored.data(), images, batch);
    guarded_copy(out, made.data(), made.size() * sizeof(float));
  }
  void dropout(void* out, const void* input, Element type, const kernels::LogicalSlice& slice,
               const kernels::RandomKey& key, const std::uint32_t* major, double probability,
               Stream /*stream*/) const override {
    require_float(type);
    guarded_do([=] {
      auto now = key;
      if (major != nullptr) now.major = read<std::uint32_t>(major, 1).front();
      auto values = read<float>(input, slice.rows * slice.columns);
      kernels::dropout(values.data(), values.data(), slice, now, probability);
      guarded_copy(out, values.data(), values.size() * sizeof(float));
    });
  }
  void cast_scale(void* /*out*/, Element /*to*/, const void* /*in*/, Element /*from*/, std::size_t /*n*/,
                  float /*scale*/, Stream /*stream*/) const override {
    throw Error("training had no use for it", {.subject = "cast_scale"});
  }
  void sum_of_squares_and_nonfinite(kernels::SumOfSquares* result, void* scratch, const float* values,
                                    std::size_t n, Stream /*stream*/) const override {
    guarded_do([=] {
      const auto sum = kernels::sum_of_squares_and_nonfinite(read<float>(values, n).data(), n);
      const std::vector<std::byte> used(kScratchBytes);
      guarded_copy(scratch, used.data(), used.size());
      guarded_copy(result, &sum, sizeof sum);
    });
  }

 private:
  GuardedFusedKernels fused_;
  static void require_float(Element type) {
    require(type == Element::float32, "the guarded device computes in float32", {.subject = "kernels"});
  }
};

[[maybe_unused]] const bool kAreUsed = [] {
  static const GuardedKernels kernels;
  kernels::use_device_kernels(&kernels);
  return true;
}();

}  // namespace
}  // namespace dtrain
