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

class GuardedKernels final : public kernels::DeviceKernels {
 public:
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
    const auto sum = kernels::sum_of_squares_and_nonfinite(read<float>(values, n).data(), n);
    const std::vector<std::byte> used(kScratchBytes);
    guarded_copy(scratch, used.data(), used.size());
    guarded_copy(result, &sum, sizeof sum);
  }

 private:
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
