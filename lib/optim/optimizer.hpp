#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/slice.hpp"

namespace dtrain::optim {

/// Which update rule, and its constants.
struct OptimizerConfig {
  std::string name = "adam";  ///< sgd, adam, adamw
  double momentum = 0.0;      ///< sgd only, in [0, 1).
  bool nesterov = false;      ///< sgd with momentum only: Nesterov's form, as PyTorch has it.
  double weight_decay = 0.0;  ///< L2 term for sgd and adam, decoupled for adamw.
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  int state_bits = 32;  ///< 8: state of large parameters in 8 bits, of single precision on the CPU.
  std::string offload =
      "none";  ///< `optimizer`: a device's parameters have their state in the host's memory.

  /// Throws Error (exit code 2), naming the option, at the first value that cannot work.
  void validate() const;

  /// Whether it is adam or adamw, which have betas and eps and no momentum.
  bool adaptive() const { return name == "adam" || name == "adamw"; }
  bool codes_state() const { return state_bits == 8; }
  bool state_on_host() const { return offload == "optimizer"; }

  /// State tensors the rule keeps, each as large as the parameters.
  int state_count() const;
  /// Of them, those that lie beside the parameters, in full.
  int states_beside() const { return codes_state() || state_on_host() ? 0 : state_count(); }
};

/// Elements [begin, end) of the flat buffer and the weight decay they get.
struct ParameterRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double weight_decay = 0.0;
};

/// A state tensor, flat and laid out like the parameters: `momentum_buffer`, `exp_avg` or `exp_avg_sq`.
struct OptimizerState {
  std::string name;
  /// [count], or the elements of the parts that the optimizer was made for, one part behind the other; shares
  /// the optimizer's memory, so copying into it restores a checkpoint.
  at::Tensor value;
};

/// An update rule over flat memory. Holds the state of exactly the elements it was made for, which may be any
/// slice of the model.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update in place. Shapes: `parameters`, `gradients` [count], contiguous, of the optimizer's dtype.
  /// Gradients are sums over the step's samples and, on the CPU, only read; `scale` (clip coefficient /
  /// weight of the step) multiplies them on the way. `step` counts updates from 1. Elements outside all
  /// ranges (padding) are left alone. `parts`: what to update; ranks that share the parameters' memory update
  /// a part each. On the CPU `parameters` and `gradients` may each be the elements of `parts` alone, one part
  /// behind the other.
  virtual void step(const at::Tensor& parameters, const at::Tensor& gradients, double scale,
                    double learning_rate, std::int64_t step, const std::vector<Range>& parts) = 0;

  /// Everything: more than any buffer of parts could be.
  void step(const at::Tensor& parameters, const at::Tensor& gradients, double scale, double learning_rate,
            std::int64_t number) {
    step(parameters, gradients, scale, learning_rate, number,
         {{0, std::numeric_limits<std::int64_t>::max()}});
  }

  /// Whether step_as_decided() may be called: the state is in single precision, and not in 8 bits.
  virtual bool takes_decisions() const { return false; }
  /// The same with what `decision` says: its scale, the learning rate, the number of the update, and whether
  /// there is one at all. It lies where the parameters do, bytes of a kernels::UpdateDecision, and is read
  /// when the device comes to it: nothing waits, and where what a device is given is captured, a replay reads
  /// it again.
  virtual void step_as_decided(const at::Tensor& parameters, const at::Tensor& gradients,
                               const at::Tensor& decision, const std::vector<Range>& parts);

  /// From now on step() also writes each new value, rounded to half precision, to `copy` [count]: true. False
  /// where this optimizer cannot.
  virtual bool write_copy_to(const at::Tensor& /*copy*/) { return false; }

  /// Empty for sgd without momentum. Of state in 8 bits these are copies, which live until close_state() or
  /// the next step: what is written to them counts after take_over_state().
  virtual const std::vector<OptimizerState>& state() const { return state_; }
  virtual void take_over_state() {}
  virtual void close_state() {}
  /// Of state in 8 bits, without such copies: the names, and the numbers at some places of the tensor
  /// `index`.
  virtual std::vector<std::string> coded_names() const { return {}; }
  virtual at::Tensor decoded(std::size_t index, const Range& places) const;
  virtual std::int64_t state_bytes() const;

 protected:
  Optimizer() = default;
  mutable std::vector<OptimizerState> state_;
};

/// Gives the memory of a state tensor: [count], zero.
using StateAllocator = std::function<at::Tensor(std::int64_t count)>;

/// An optimizer for `count` elements of the given dtype and device, its state zero. Ranges must not overlap.
/// `held`: the only parts that step() will be given, ascending, where it is to have no state for the rest;
/// not given: everything. Throws Error for a bad config, range or part.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, std::int64_t count,
                                          std::vector<ParameterRange> ranges,
                                          const at::TensorOptions& options,
                                          const StateAllocator& allocate = {},
                                          std::optional<std::vector<Range>> held = {});

/// The same with one range over everything and config.weight_decay.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, std::int64_t count,
                                          const at::TensorOptions& options,
                                          const StateAllocator& allocate = {});

}  // namespace dtrain::optim
