#include "models/compute/kernel_scope.hpp"

#include <utility>

namespace dtrain::models {
namespace {

// Of a thread, as LibTorch's modes are: pieces of a layer that run on other threads make no choice.
thread_local Kernels chosen = Kernels::own;

}  // namespace

KernelScope::KernelScope(Kernels kernels) : before_(std::exchange(chosen, kernels)) {}

KernelScope::~KernelScope() { chosen = before_; }

bool own_kernels_are_on() { return chosen != Kernels::libtorch; }
bool fused_kernels_are_on() { return chosen == Kernels::fused; }

}  // namespace dtrain::models
