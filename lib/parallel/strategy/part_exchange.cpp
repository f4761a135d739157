#include "parallel/strategy/part_exchange.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace dtrain::parallel {
namespace {

/// The messages of all copies, of one length, each with the copy's weight in front. They travel as words.
class Messages {
 public:
  Messages(std::size_t bytes, int copies)
      : words_((sizeof(double) + bytes + sizeof(std::int32_t) - 1) / sizeof(std::int32_t)),
        mine_(words_, 0),
        all_(words_ * static_cast<std::size_t>(copies)) {}

  std::span<std::byte> mine(double weight) {
    std::memcpy(mine_.data(), &weight, sizeof weight);
    return std::as_writable_bytes(std::span(mine_)).subspan(sizeof weight);
  }
  void exchange(comm::Group& copies) {
    copies.all_gather(comm::Buffer::of(std::span(mine_)), comm::Buffer::of(std::span(all_))).wait();
  }
  double weight(int copy) const {
    double weight = 0;
    std::memcpy(&weight, of(copy).data(), sizeof weight);
    return weight;
  }
  std::span<const std::byte> body(int copy) const { return std::as_bytes(of(copy)).subspan(sizeof(double)); }

 private:
  std::span<const std::int32_t> of(int copy) const {
    return std::span(all_).subspan(static_cast<std::size_t>(copy) * words_, words_);
  }

  std::size_t words_;
  std::vector<std::int32_t> mine_;
  std::vector<std::int32_t> all_;
};

}  // namespace

void PartExchange::average(const Range& part, const at::Tensor& agreed, double weight) {
  if (part.size() == 0 || copies_.size() == 1) return;
  const at::NoGradGuard no_grad;
  if (type_ == ExchangeType::full) {
    average_all_bits(part, agreed, weight);
  } else {
    average_differences(part, agreed, weight);
  }
}

void PartExchange::average_all_bits(const Range& part, const at::Tensor& agreed, double weight) {
  const double weights = copy_.add_up(part, weight);
  auto values = copy_.values().narrow(0, part.begin, part.size());
  if (weights > 0) {
    values.div_(weights);
  } else {
    values.copy_(agreed.narrow(0, part.begin, part.size()));
  }
}

void PartExchange::average_differences(const Range& part, const at::Tensor& agreed, double weight) {
  const DifferenceCodec codec(type_);
  auto values = copy_.values().narrow(0, part.begin, part.size());
  const auto before = agreed.narrow(0, part.begin, part.size());
  auto difference = (values - before).to(at::kCPU, at::kFloat).contiguous();
  const std::span<float> elements(difference.mutable_data_ptr<float>(),
                                  static_cast<std::size_t>(part.size()));
  Messages messages(codec.bytes(elements.size()), copies_.size());
  codec.encode(elements, messages.mine(weight));
  messages.exchange(copies_);
  double weights = 0;
  for (int rank = 0; rank < copies_.size(); ++rank) weights += messages.weight(rank);
  difference.zero_();
  for (int rank = 0; rank < copies_.size() && weights > 0; ++rank)
    codec.add(messages.body(rank), static_cast<float>(messages.weight(rank) / weights), elements);
  values.copy_(before).add_(difference.to(values.options()));
}

}  // namespace dtrain::parallel
