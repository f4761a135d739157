#include "parallel/memory/node_memory.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::int64_t kAlignment = 64;  // elements; at least a cache line of any type

}  // namespace

NodeMemory::NodeMemory(comm::Group& group, std::int64_t elements, const at::TensorOptions& options,
                       std::int64_t own) {
  const auto bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
  const bool shares = group.size() > 1 && options.device().is_cpu();
  std::shared_ptr<comm::SharedBuffer> common = shares ? group.allocate_common(bytes) : nullptr;
  if (!common) {
    whole_ = at::zeros({own}, options);
    return;
  }
  shared_ = true;
  charge_ = std::make_unique<MemoryCharge>(static_cast<std::int64_t>(bytes) / group.size());
  fills_ = group.rank() == 0;
  void* const data = common->data();
  whole_ = at::from_blob(
      data, {elements}, [common = std::move(common)](void*) {}, options);
}

at::Tensor NodeMemory::take(std::int64_t count) {
  require(taken_ + count <= whole_.numel(), "more memory was taken than there is", {.subject = "parameters"});
  auto part = whole_.narrow(0, taken_, count);
  taken_ += (count + kAlignment - 1) / kAlignment * kAlignment;
  return part;
}

}  // namespace dtrain::parallel
