#include "parallel/gradients/gradient_hooks.hpp"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace dtrain::parallel {

class GradientHooks::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(const GradientHooks& all, std::size_t index) : all_(all), index_(index) {}
  void operator()(const torch::autograd::Variable&) override { all_.complete_(index_); }

 private:
  const GradientHooks& all_;
  std::size_t index_;
};

GradientHooks::GradientHooks(std::vector<models::Parameter*> parameters, Complete complete)
    : parameters_(std::move(parameters)), complete_(std::move(complete)) {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i]->value, std::make_unique<Hook>(*this, i));
}

GradientHooks::~GradientHooks() {
  for (auto* const parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter->value, nullptr);
    parameter->value.mutable_grad().reset();
  }
}

}  // namespace dtrain::parallel
