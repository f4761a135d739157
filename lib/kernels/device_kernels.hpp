#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dropout.hpp"
#include "kernels/element.hpp"
#include "kernels/fused/fused_kernels.hpp"
#include "kernels/fused/product_kernels.hpp"
#include "kernels/image_batch.hpp"
#include "kernels/reduce.hpp"

namespace dtrain::kernels {

/// The kernels that run on a GPU, each with a twin for the CPU that gives the same: there a test compares
/// them. They live in the module with everything of CUDA, which is opened on demand; this table is all that
/// the program knows of them. Pointers lead into the current GPU's memory. A call puts the kernel into
/// `stream` (a cudaStream_t; null: the default stream) and returns; every call throws Error when CUDA refuses
/// the launch.
class DeviceKernels {
 public:
  using Stream = void*;
  virtual ~DeviceKernels() = default;

  static constexpr std::size_t kMostChannels = 16;  ///< Of images that prepare_images() takes.
  static constexpr int kMostPadding = 127;          ///< Around them, of crops.
  /// As prepare_images(); `batch` lies on the host and is copied along. Its `how` is that of `images` images,
  /// or empty.
  virtual void prepare_images(void* out, Element type, const std::uint8_t* bytes, std::size_t images,
                              const ImageBatch& batch, Stream stream) const = 0;

  /// As dropout(); float32 in and out gives the same bits, the 16-bit types are rounded once. `major`: what
  /// takes the place of the key's, read from the GPU's memory when the kernel runs; null: nothing does.
  virtual void dropout(void* out, const void* input, Element type, const LogicalSlice& slice,
                       const RandomKey& key, const std::uint32_t* major, double probability,
                       Stream stream) const = 0;

  /// out[i] = in[i] * scale, in float, rounded to `to` once: gradients into a bucket, and back.
  virtual void cast_scale(void* out, Element to, const void* in, Element from, std::size_t n, float scale,
                          Stream stream) const = 0;

  /// Bytes of the GPU's memory that sum_of_squares_and_nonfinite() needs beside its result.
  static constexpr std::size_t kScratchBytes = 1024 * sizeof(SumOfSquares);
  /// As its twin, of float32, in one pass; the order of the sum depends on n only, but is another one.
  virtual void sum_of_squares_and_nonfinite(SumOfSquares* result, void* scratch, const float* values,
                                            std::size_t n, Stream stream) const = 0;

  /// Fixes memory of the host in its place, from and to which the device then copies without a copy of the
  /// driver's in between. False where the system does not let it, as for want of lockable memory: all goes as
  /// before. unpin() must come before the memory's end.
  virtual bool pin(void* /*memory*/, std::size_t /*bytes*/) const { return false; }
  virtual void unpin(void* /*memory*/) const noexcept {}

  /// Those that join several operations; null: the device has none.
  virtual const FusedKernels* fused() const { return nullptr; }
  /// Products that do more with their results; null: the device has none.
  virtual const ProductKernels* products() const { return nullptr; }
};

/// Those of the module that has been opened; null: there are none.
const DeviceKernels* device_kernels();
/// To be called once, before anything computes.
void use_device_kernels(const DeviceKernels* kernels);

/// What the module's function `dtrain_device_kernels` is; the table lives as long as the module.
using DeviceKernelsEntry = const DeviceKernels* (*)();

}  // namespace dtrain::kernels
