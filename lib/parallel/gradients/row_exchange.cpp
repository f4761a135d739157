#include "parallel/gradients/row_exchange.hpp"

#include <ATen/ops/mul.h>

#include <cstring>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

constexpr std::size_t kBlockAlignment = 64;  // bytes: no two ranks write to one cache line

std::size_t rounded(std::size_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

}  // namespace

RowExchange::RowExchange(comm::Group& group, const RowLimits& limits, std::int64_t columns,
                         at::ScalarType dtype)
    : group_(group), limits_(limits), columns_(columns) {
  const auto numbers = static_cast<std::size_t>(2 + limits.samples * (1 + limits.tokens));
  ids_ = make_blocks(numbers * sizeof(std::int32_t));
  const auto elements = static_cast<std::size_t>(limits.samples * columns);
  gradients_ = make_blocks(elements * c10::elementSize(dtype));
}

RowExchange::Blocks RowExchange::make_blocks(std::size_t bytes) {
  Blocks blocks;
  // Gradients are addressed as one matrix over all ranks, so only whole blocks of ids may be padded.
  blocks.block_bytes = bytes;
  const std::size_t whole_bytes = bytes * static_cast<std::size_t>(group_.size());
  blocks.common = group_.allocate_common(rounded(whole_bytes));
  if (blocks.common) {
    blocks.whole = blocks.common->data();
    blocks.own = static_cast<std::byte*>(blocks.whole) + bytes * static_cast<std::size_t>(group_.rank());
    return blocks;
  }
  blocks.gathered.resize(whole_bytes);
  blocks.whole = blocks.gathered.data();
  blocks.own = blocks.whole;
  if (group_.size() > 1) {
    blocks.sent.resize(bytes);
    blocks.own = blocks.sent.data();
  }
  return blocks;
}

void RowExchange::publish(Blocks& blocks) {
  if (group_.size() == 1) return;
  if (blocks.common) {
    group_.barrier().wait();
    return;
  }
  const std::size_t words = blocks.block_bytes / sizeof(std::int32_t);
  group_
      .all_gather({blocks.own, words, comm::DataType::int32},
                  {blocks.whole, words * static_cast<std::size_t>(group_.size()), comm::DataType::int32})
      .wait();
}

void RowExchange::share_ids(const std::vector<at::Tensor>& pieces) {
  auto* numbers = static_cast<std::int32_t*>(ids_.own);
  std::int64_t samples = 0;
  for (const at::Tensor& piece : pieces) {
    require(piece.size(1) <= limits_.tokens, "a sample has more tokens than the exchange was made for",
            {.subject = "row exchange"});
    samples += piece.size(0);
  }
  require(samples <= limits_.samples, "a step has more samples than the exchange was made for",
          {.subject = "row exchange"});
  numbers[0] = static_cast<std::int32_t>(samples);
  std::int32_t* begins = numbers + 1;
  std::int32_t* ids = begins + samples + 1;
  std::int32_t count = 0;
  for (const at::Tensor& piece : pieces) {
    const at::Tensor dense = piece.contiguous();
    const auto* padded = dense.const_data_ptr<std::int32_t>();
    for (std::int64_t i = 0; i < dense.size(0); ++i, padded += dense.size(1)) {
      *begins++ = count;
      for (std::int64_t t = 0; t < dense.size(1); ++t) {
        ids[count] = padded[t];
        count += padded[t] != 0 ? 1 : 0;
      }
    }
  }
  *begins = count;
  publish(ids_);
}

void RowExchange::share_gradients(const models::RowGradients& pieces) {
  auto* to = static_cast<std::byte*>(gradients_.own);
  std::int64_t samples = 0;
  for (const models::RowGradient& piece : pieces) {
    samples += piece.gradient.size(0);
    require(samples <= this->samples(group_.rank()), "a piece was differentiated whose ids were not shared",
            {.subject = "row exchange"});
    const at::Tensor scaled = at::mul(piece.gradient, piece.scales.unsqueeze(1));
    std::memcpy(to, scaled.const_data_ptr(), scaled.nbytes());
    to += scaled.nbytes();
  }
  require(samples == this->samples(group_.rank()), "a piece was shared but not differentiated",
          {.subject = "row exchange"});
  publish(gradients_);
}

const std::int32_t* RowExchange::ids_of(int rank) const {
  const auto* whole = static_cast<const std::byte*>(ids_.whole);
  return reinterpret_cast<const std::int32_t*>(whole + ids_.block_bytes * static_cast<std::size_t>(rank));
}

std::int64_t RowExchange::samples(int rank) const { return ids_of(rank)[0]; }

std::span<const std::int32_t> RowExchange::ids(int rank, std::int64_t sample) const {
  const std::int32_t* numbers = ids_of(rank);
  const std::int32_t* begins = numbers + 1;
  const std::int32_t* ids = begins + numbers[0] + 1;
  return {ids + begins[sample], static_cast<std::size_t>(begins[sample + 1] - begins[sample])};
}

}  // namespace dtrain::parallel
