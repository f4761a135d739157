#include "parallel/gradient_buckets.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "parallel/agreement.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::parallel {
namespace {

// On CPU ranks the reduction is itself compute: overlap hides skew and links, not adding, so a small model
// goes in one bucket and a large one in pieces that a cache or a link takes in a few milliseconds.
constexpr std::int64_t kDefaultBucketBytes = std::int64_t{8} << 20;

}  // namespace

/// Tells the buckets that one parameter's gradient of this backward pass is complete.
class GradientBuckets::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(GradientBuckets& buckets, std::size_t entry) : buckets_(buckets), entry_(entry) {}
  void operator()(const torch::autograd::Variable&) override { buckets_.on_gradient(entry_); }

 private:
  GradientBuckets& buckets_;
  std::size_t entry_;
};

GradientBuckets::GradientBuckets(FlatParameters& parameters, comm::Group& group, comm::Queue& queue,
                                 BucketConfig config)
    : parameters_(parameters), group_(group), queue_(queue), algorithm_(config.algorithm) {
  const auto element_bytes = static_cast<std::int64_t>(c10::elementSize(parameters.dtype()));
  memory_ = group.allocate(static_cast<std::size_t>(parameters.size() * element_bytes));
  gradients_ =
      at::from_blob(memory_->data(), {parameters.size()}, at::TensorOptions().dtype(parameters.dtype()));

  const auto limit = config.bucket_bytes > 0 ? config.bucket_bytes : kDefaultBucketBytes;
  const auto& entries = parameters.entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto end = i + 1 < entries.size() ? entries[i + 1].offset : parameters.size();
    const bool full = !buckets_.empty() && (end - buckets_.back().begin) * element_bytes > limit;
    if (buckets_.empty() || full) buckets_.push_back({.begin = entries[i].offset});
    buckets_.back().end = end;
    ++buckets_.back().parameters;
    bucket_of_.push_back(buckets_.size() - 1);
    views_.push_back(FlatParameters::view(gradients_, entries[i]));
  }
  received_.assign(entries.size(), 0);
  require_agreement(
      group, parameters.layout_hash() ^ static_cast<std::uint64_t>(limit),
      "the ranks lay out the model's parameters differently",
      {.subject = "gradient buckets", .advice = "start the same binary and options on every rank"});
  for (std::size_t i = 0; i < entries.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(entries[i].parameter->value,
                                                   std::make_unique<Hook>(*this, i));
  }
}

GradientBuckets::~GradientBuckets() {
  for (const auto& entry : parameters_.entries()) {
    auto& value = entry.parameter->value;
    torch::autograd::impl::set_post_acc_grad_hooks(value, nullptr);
    value.mutable_grad().reset();  // a view into memory that is about to go
  }
}

void GradientBuckets::begin_step(int backward_passes) {
  backward_passes_ = backward_passes;
  backward_pass_ = 0;
  next_bucket_ = 0;
  std::fill(received_.begin(), received_.end(), std::uint8_t{0});
  for (auto& bucket : buckets_) bucket.missing = bucket.parameters;
  // Undefined, not zero: the first gradient is copied into place, which spares filling and adding.
  for (const auto& entry : parameters_.entries()) entry.parameter->value.mutable_grad().reset();
}

void GradientBuckets::on_gradient(std::size_t i) {
  auto& gradient = parameters_.entries()[i].parameter->value.mutable_grad();
  auto& view = views_[i];
  if (!received_[i]) {
    const at::NoGradGuard no_grad;
    if (gradient.strides() == view.strides() && gradient.is_non_overlapping_and_dense()) {
      std::memcpy(view.data_ptr(), gradient.data_ptr(), view.nbytes());
    } else {
      view.copy_(gradient);
    }
    gradient = view;
    received_[i] = 1;
  } else if (gradient.data_ptr() != view.data_ptr()) {
    throw Error("a gradient has left its bucket",
                {.subject = parameters_.entries()[i].parameter->name,
                 .advice = "nothing may replace .grad between two backward passes"});
  }
  if (backward_pass_ < backward_passes_) return;
  --buckets_[bucket_of_[i]].missing;
  issue_ready_buckets();
}

void GradientBuckets::issue_ready_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) {
    auto& bucket = buckets_[next_bucket_++];
    if (group_.size() == 1) continue;
    auto part = gradients_.narrow(0, bucket.begin, bucket.end - bucket.begin);
    bucket.handle = group_.all_reduce(
        {part.data_ptr(), static_cast<std::size_t>(part.numel()), data_type_of(part.scalar_type())},
        comm::ReduceOp::sum, algorithm_);
  }
  queue_.progress();
}

void GradientBuckets::finish() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < views_.size(); ++i) {
    if (!received_[i]) views_[i].zero_();
  }
  for (auto& bucket : buckets_) bucket.missing = 0;
  issue_ready_buckets();
  for (auto& bucket : buckets_) bucket.handle.wait();
}

Range GradientBuckets::own_part() const { return part_of(gradients_.numel(), group_.rank(), group_.size()); }

}  // namespace dtrain::parallel
