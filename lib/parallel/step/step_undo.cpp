#include "parallel/step/step_undo.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <span>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

std::vector<at::Tensor> flat_values(FlatParameters& parameters, const optim::Optimizer& optimizer) {
  std::vector<at::Tensor> values = {parameters.values()};
  for (const auto& state : optimizer.state()) values.push_back(state.value);
  return values;
}

std::int64_t largest(comm::Group& group, std::int64_t value) {
  group.all_reduce(comm::Buffer::of(std::span(&value, 1)), comm::ReduceOp::max).wait();
  return value;
}

std::vector<at::Tensor> buffers_of(models::Model& model) {
  std::vector<at::Tensor> buffers;
  for (const auto* buffer : model.buffers()) buffers.push_back(buffer->value);
  return buffers;
}

}  // namespace

StepUndo::StepUndo(comm::Group& group, FlatParameters& parameters, optim::Optimizer& optimizer,
                   models::Model& model, const std::vector<Range>& update_parts, bool shared)
    : values_(flat_values(parameters, optimizer)),
      memory_(group, static_cast<std::int64_t>(values_.size()) * parameters.size(),
              parameters.values().options()),
      most_parts_(largest(group, static_cast<std::int64_t>(update_parts.size()))),
      ranks_(memory_.shared() ? group.size() : 1),
      rank_(memory_.shared() ? group.rank() : 0),
      buffers_(buffers_of(model)) {
  const auto words = static_cast<std::size_t>(ranks_ * (2 + 2 * most_parts_));
  if (memory_.shared()) shared_words_ = group.allocate_common(words * sizeof(std::int64_t));
  require(memory_.shared() == shared && (shared_words_ != nullptr) == shared,
          "there is no room for what a step may have to take back",
          {.subject = "/dev/shm", .advice = "make room there, or use --on-failure abort"});
  for (const auto& values : values_) kept_.push_back(memory_.take(values.numel()));
  if (shared) {
    words_ = static_cast<std::int64_t*>(shared_words_->data());
  } else {
    own_words_.assign(words, 0);
    words_ = own_words_.data();
  }
  std::int64_t* next = words_ + rank_ * (2 + 2 * most_parts_);
  *next++ = 0;  // no step
  *next++ = static_cast<std::int64_t>(update_parts.size());
  for (const Range& part : update_parts) {
    *next++ = part.begin;
    *next++ = part.end;
  }
  for (const auto& buffer : buffers_) kept_buffers_.push_back(buffer.clone());
  group.barrier().wait();
}

std::atomic_ref<std::int64_t> StepUndo::kept_step(int rank) const {
  return std::atomic_ref(words_[rank * (2 + 2 * most_parts_)]);
}

std::vector<Range> StepUndo::parts_of(int rank) const {
  const std::int64_t* next = words_ + rank * (2 + 2 * most_parts_) + 1;
  std::vector<Range> parts(static_cast<std::size_t>(*next++));
  for (Range& part : parts) {
    part.begin = *next++;
    part.end = *next++;
  }
  return parts;
}

void StepUndo::copy(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to, int rank) const {
  const at::NoGradGuard no_grad;
  for (const Range& part : parts_of(rank)) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      to[i].narrow(0, part.begin, part.size()).copy_(from[i].narrow(0, part.begin, part.size()));
    }
  }
}

void StepUndo::keep(std::int64_t number) {
  copy(values_, kept_, rank_);
  for (std::size_t i = 0; i < buffers_.size(); ++i) kept_buffers_[i].copy_(buffers_[i]);
  kept_step(rank_).store(number, std::memory_order_release);  // from here on the copy counts
}

void StepUndo::take_back(std::int64_t number) {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (kept_step(rank).load(std::memory_order_acquire) == number) copy(kept_, values_, rank);
  }
  const at::NoGradGuard no_grad;
  if (kept_step(rank_).load() != number) return;
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(kept_buffers_[i]);
}

}  // namespace dtrain::parallel
