#include "inference/output_rows.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/slice.hpp"

namespace dtrain::inference {
namespace {

constexpr std::int64_t kLargestRow = 1 << 20;
constexpr std::int64_t kMostDims = 8;  // of a row

template <class T>
void append(std::vector<T>& rows, std::vector<std::int64_t>& shape, const at::Tensor& values) {
  shape.assign(values.sizes().begin() + 1, values.sizes().end());
  const auto dense = values.cpu().to(c10::CppTypeToScalarType<T>::value).contiguous();
  const T* const first = dense.template const_data_ptr<T>();
  rows.insert(rows.end(), first, first + dense.numel());
}

/// The shape that a row has on the ranks that have some; false where none has.
bool share_shape(comm::Group& group, bool has_rows, std::vector<std::int64_t>& shape) {
  std::array<std::int64_t, kMostDims + 1> said{};  // 1 + dims, and the dims
  if (has_rows) {
    said[0] = 1 + std::ssize(shape);
    std::ranges::copy(shape, said.begin() + 1);
  }
  group.all_reduce(comm::Buffer::of(std::span<std::int64_t>(said)), comm::ReduceOp::max).wait();
  if (said[0] == 0) return false;
  shape.assign(said.begin() + 1, said.begin() + said[0]);
  return true;
}

template <class T>
void join(comm::Group& group, std::vector<T>& rows, std::vector<std::int64_t>& shape, std::int64_t samples) {
  if (!share_shape(group, !rows.empty(), shape)) return;
  std::int64_t width = 1;
  for (const auto extent : shape) width *= extent;
  if (group.rank() != 0) {
    group.send(comm::Buffer::of(std::span(rows)), 0).wait();
    return;
  }
  rows.resize(static_cast<std::size_t>(samples * width));
  for (int rank = 1; rank < group.size(); ++rank) {
    const Range part = part_of(samples, rank, group.size());
    const std::span<T> theirs(rows.data() + part.begin * width,
                              static_cast<std::size_t>(part.size() * width));
    group.receive(comm::Buffer::of(theirs), rank).wait();
  }
}

}  // namespace

void OutputRows::take(const train::BatchOutputs& batch) {
  const at::Tensor& outputs = batch.outputs.at(0);
  require(
      outputs.dim() > 0 && outputs.size(0) == static_cast<std::int64_t>(batch.batch.samples.size()) &&
          outputs.numel() / std::max<std::int64_t>(outputs.size(0), 1) <= kLargestRow &&
          outputs.dim() <= kMostDims,
      "this model gives no output of one size per sample, as one does not whose output is its loss",
      {.subject = option_, .advice = "use dtrain evaluate without --predictions", .code = ExitCode::usage});
  append(own_.outputs, own_.output_shape, outputs);
  append(own_.targets, own_.target_shape, batch.targets);
  if (batch.codes.defined()) append(own_.codes, own_.code_shape, batch.codes);
}

record::Predictions OutputRows::gather(comm::Group& group, std::int64_t samples) {
  // A rank without samples has not seen the shapes; every rank knows how many rows the others have.
  join(group, own_.outputs, own_.output_shape, samples);
  join(group, own_.targets, own_.target_shape, samples);
  join(group, own_.codes, own_.code_shape, samples);
  own_.samples = samples;
  return std::move(own_);
}

}  // namespace dtrain::inference
