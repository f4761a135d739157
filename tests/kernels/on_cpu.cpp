// The kernels of lib/kernels/cuda, compiled for the CPU: support/cuda_on_cpu.
#include <cuda_runtime.h>

#include "kernels/cuda/bias_gradient.hpp"
#include "kernels/cuda/product_kernels.hpp"
#include "kernels/on_device.hpp"

extern "C" const dtrain::kernels::DeviceKernels* dtrain_device_kernels();

namespace dtrain::kernels {
namespace {

/// cublasLt's part by plain loops.
class PlainProducts final : public ProductKernels {
 public:
  bool gelu(void* out, void* before, const void* x, const void* weight, const void* bias, Element type,
            const InnerProduct& of, void* /*workspace*/, Stream /*stream*/) const override {
    with_element_type(type, [&]<class T>(T*) {
      for (std::size_t i = 0; i < of.rows * of.inner; ++i) {
        double sum = to_float(static_cast<const T*>(bias)[i % of.inner]);
        for (std::size_t c = 0; c < of.width; ++c)
          sum += product(static_cast<const T*>(x)[i / of.inner * of.width + c],
                         static_cast<const T*>(weight)[i % of.inner * of.width + c]);
        static_cast<T*>(before)[i] = from_float<T>(static_cast<float>(sum));
        const double inside = 0.7978845608028654 * (sum + 0.044715 * sum * sum * sum);
        static_cast<T*>(out)[i] = from_float<T>(static_cast<float>(0.5 * sum * (1 + std::tanh(inside))));
      }
    });
    return true;
  }

  bool gelu_gradient(void* gradient, float* of_bias, const void* of_output, const void* outer,
                     const void* before, Element type, const InnerProduct& of, void* workspace,
                     Stream stream) const override {
    with_element_type(type, [&]<class T>(T*) {
      for (std::size_t i = 0; i < of.rows * of.inner; ++i) {
        double sum = 0;
        for (std::size_t c = 0; c < of.width; ++c)
          sum += product(static_cast<const T*>(of_output)[i / of.inner * of.width + c],
                         static_cast<const T*>(outer)[c * of.inner + i % of.inner]);
        static_cast<T*>(gradient)[i] = from_float<T>(static_cast<float>(sum));
      }
    });
    gelu_gradient_on_gpu(gradient, of_bias, before, type, of, workspace, stream);
    return true;
  }

 private:
  template <class T>
  static double product(T a, T b) {
    return static_cast<double>(to_float(a)) * to_float(b);
  }
};

}  // namespace

const ProductKernels& product_kernels_of_gpu() {
  static const PlainProducts products;
  return products;
}

std::string why_not() { return ""; }
const DeviceKernels& kernels_of_device() { return *dtrain_device_kernels(); }
void change_order_of_blocks() {
  static bool reverse = false;
  reverse = !reverse;
  cuda_on_cpu::reverse_blocks(reverse);
}

}  // namespace dtrain::kernels
