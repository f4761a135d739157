#include "parallel/strategy/private/sample_clipper.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace dtrain::parallel {
namespace {

/// Brings one sample of a micro-batch that was read.
class OneSample final : public SampleSource {
 public:
  OneSample(const Samples& all, std::int64_t index) {
    for (const auto& input : all.inputs) one_.inputs.push_back(input.narrow(0, index, 1));
    one_.targets = all.targets.narrow(0, index, 1);
  }
  Samples take(const StepPlan& /*plan*/, std::size_t /*m*/) override { return one_; }
  std::vector<Samples> look_ahead(const StepPlan& /*plan*/) override { return {one_}; }
  void read_ahead() override {}

 private:
  Samples one_;
};

}  // namespace

SampleClipper::SampleClipper(const StrategyParts& parts, FlatParameters& parameters, PassOne pass_one)
    : parts_(parts), pass_one_(std::move(pass_one)), sum_(parameters, parts.setting.options.dp_clip) {
  obstacle_ = SampleWalk::obstacle(parts.model).value_or("");
  if (obstacle_.empty()) walk_.emplace(parts.model);
}

models::LossSums SampleClipper::add(const StepPlan& plan, std::size_t m, const Samples& read,
                                    std::uint64_t secret) {
  if (!walk_) return one_by_one(plan, m, read);
  const models::Context context{
      .mode = models::Mode::training,
      .seed = secret,
      .step = static_cast<std::uint32_t>(plan.number),
      .micro_batch = plan.micro_batches[m].index,
      .kernels = parts_.setting.own_kernels ? models::Kernels::own : models::Kernels::libtorch};
  return walk_->add(read, context, parts_.training_loss, sum_);
}

/// Each sample as a micro-batch of its own.
models::LossSums SampleClipper::one_by_one(const StepPlan& plan, std::size_t m, const Samples& samples) {
  const auto& micro_batch = plan.micro_batches[m];
  models::LossSums all;
  for (std::int64_t i = 0; i < micro_batch.samples(); ++i) {
    StepPlan one{.number = plan.number};
    const auto id = micro_batch.ids[static_cast<std::size_t>(i)];
    one.micro_batches.push_back({.index = static_cast<std::uint32_t>(id), .ids = {id}});
    OneSample source(samples, i);
    for (const auto& loss : pass_one_(one, source, sum_)) {
      all.loss = all.loss.defined() ? all.loss + loss.sums.loss : loss.sums.loss;
      if (loss.sums.correct.defined())
        all.correct = all.correct.defined() ? all.correct + loss.sums.correct : loss.sums.correct;
      all.weight += loss.sums.weight;
      all.counted += loss.sums.counted;
    }
  }
  return all;
}

}  // namespace dtrain::parallel
