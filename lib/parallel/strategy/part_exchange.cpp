#include "parallel/strategy/part_exchange.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace dtrain::parallel {
namespace {

at::Tensor part_of_all(const at::Tensor& all, const Range& part) {
  return all.narrow(0, part.begin, part.size());
}

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
  comm::Handle exchange(comm::Group& copies) {
    return copies.all_gather(comm::Buffer::of(std::span(mine_)), comm::Buffer::of(std::span(all_)));
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

/// Differences of all copies to values that they had agreed on.
class SentDifferences final : public SentPart {
 public:
  /// `values` and `before`: of `part`. `common`: borrowed; null: nothing is.
  SentDifferences(comm::Group& copies, ExchangeType type, const at::Tensor& values, at::Tensor before,
                  double weight, const Range& part, const CommonParameters* common)
      : codec_(type),
        copies_(copies.size()),
        part_(part),
        common_(common),
        before_(std::move(before)),
        messages_(codec_.bytes(elements()), copies_) {
    const auto difference = (values - before_).to(at::kCPU, at::kFloat).contiguous();
    codec_.encode({difference.const_data_ptr<float>(), elements()}, messages_.mine(weight));
    arrival_ = messages_.exchange(copies);
  }

  void receive(at::Tensor mean) override {
    arrival_.wait();
    double weights = 0;
    for (int copy = 0; copy < copies_; ++copy) weights += messages_.weight(copy);
    const auto difference = at::zeros({before_.numel()}, at::kFloat);
    const std::span<float> sums(difference.mutable_data_ptr<float>(), elements());
    for (int copy = 0; copy < copies_ && weights > 0; ++copy)
      codec_.add(messages_.body(copy), static_cast<float>(messages_.weight(copy) / weights), sums);
    if (common_ != nullptr) common_->agree(difference, part_, true);
    mean.copy_(before_).add_(difference.to(mean.options()));
  }

 private:
  std::size_t elements() const { return static_cast<std::size_t>(before_.numel()); }

  DifferenceCodec codec_;
  int copies_;
  Range part_;
  const CommonParameters* common_;
  at::Tensor before_;
  Messages messages_;
  comm::Handle arrival_;
};

/// The sum of all copies, each times its weight.
class SentSum final : public SentPart {
 public:
  /// `values` and `before`: of the part, whose place in `memory` has the sum.
  SentSum(comm::Group& copies, const at::Tensor& values, at::Tensor before, PartExchange::Weight weight,
          const ExchangeMemory& memory, const Range& part, comm::Algorithm algorithm)
      : memory_(memory),
        part_(part),
        before_(std::move(before)),
        weights_(weight.is_share ? 1 : weight.value) {
    if (!weight.is_share)
      all_weights_ = copies.all_reduce(comm::Buffer::of(std::span(&weights_, 1)), comm::ReduceOp::sum);
    part_of_all(memory_.values(), part_).copy_(values).mul_(weight.value);
    sum_ = memory_.group().all_reduce(memory_.outgoing(part_), comm::ReduceOp::sum, algorithm);
  }

  void receive(at::Tensor mean) override {
    all_weights_.wait();
    memory_.take_in(sum_, part_);
    if (weights_ > 0) {
      mean.copy_(part_of_all(memory_.values(), part_)).div_(weights_);
    } else {
      mean.copy_(before_);
    }
  }

 private:
  const ExchangeMemory& memory_;
  Range part_;
  at::Tensor before_;
  double weights_;
  comm::Handle all_weights_;
  comm::Handle sum_;
};

}  // namespace

PartExchange::PartExchange(LocalCopy& copy, comm::Group& copies, comm::Group& tensor, ExchangeType type)
    : copy_(copy), copies_(copies), type_(type) {
  if (type == ExchangeType::int8 && tensor.size() > 1)
    common_ = std::make_unique<CommonParameters>(copy.parameters(), nullptr, tensor);
}

void PartExchange::average(const Range& part, const at::Tensor& agreed, Weight weight) {
  if (part.size() == 0 || copies_.size() == 1) return;
  const at::NoGradGuard no_grad;
  if (type_ == ExchangeType::full) {
    average_all_bits(part, agreed, weight);
  } else {
    const auto values = part_of_all(copy_.values(), part);
    SentDifferences(copies_, type_, values, part_of_all(agreed, part), weight.value, part, common_.get())
        .receive(values);
  }
}

std::unique_ptr<SentPart> PartExchange::send(const Range& part, const at::Tensor& agreed, Weight weight,
                                             const ExchangeMemory& memory) {
  if (part.size() == 0 || copies_.size() == 1) return nullptr;
  const at::NoGradGuard no_grad;
  const auto values = part_of_all(copy_.values(), part);
  auto before = part_of_all(agreed, part);
  if (type_ != ExchangeType::full)
    return std::make_unique<SentDifferences>(copies_, type_, values, std::move(before), weight.value, part,
                                             common_.get());
  return std::make_unique<SentSum>(copies_, values, std::move(before), weight, memory, part,
                                   copy_.algorithm());
}

void PartExchange::average_all_bits(const Range& part, const at::Tensor& agreed, Weight weight) {
  if (weight.is_share) return copy_.take_sum(part, weight.value);
  const double weights = copy_.add_up(part, weight.value);
  auto values = part_of_all(copy_.values(), part);
  if (weights > 0) {
    values.div_(weights);
  } else {
    values.copy_(part_of_all(agreed, part));
  }
}

}  // namespace dtrain::parallel
