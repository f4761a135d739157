#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/group.hpp"
#include "parallel/gradients/compression/gradient_compression.hpp"
#include "parallel/gradients/flat_parameters.hpp"

namespace dtrain::parallel {

/// What is said where a checkpoint lacks the error of a compression.
inline constexpr const char* kErrorStartsAnew =
    "the checkpoint has no error of this compression, which starts anew";

/// What a node has not sent of a parameter's gradient yet, for one sample, as checkpoints have it: each
/// node's own. On another number of nodes each takes its share of their sum.
StateTensor kept_error(const std::string& group, const std::string& name, const at::Tensor& error,
                       const comm::NodePlace& place);

/// A compression that leaves something out of each step's gradient: each node keeps that, on the rank that
/// carries for it, and adds it to the next step's. It is kept for one sample: a gradient is a sum over a
/// step's samples, and steps differ in their number.
class ErrorFeedback : public GradientCompression {
 public:
  void begin_step(std::int64_t /*number*/, std::int64_t samples) override {
    samples_ = static_cast<float>(samples);
  }
  std::vector<StateTensor> state() const override { return state_; }

 protected:
  /// Of the step; lives as long as this.
  const float& samples() const { return samples_; }
  /// An error for each element of the parameters, zero. Once. `group`: as of lay_out().
  void begin_errors(const FlatParameters& parameters, const comm::Group& group);
  /// From element `offset` of the parameters on; null on ranks that do not carry for their node.
  float* error_at(std::int64_t offset) const;
  /// From now on state() has the error of a parameter, under `group`: see kept_error().
  void save_error(const std::string& group, const FlatParameters::Entry& entry);
  void save(StateTensor tensor) { state_.push_back(std::move(tensor)); }

 private:
  comm::NodePlace place_;
  float samples_ = 1;
  at::Tensor errors_;  // laid out like the parameters; undefined where this rank does not carry
  std::vector<StateTensor> state_;
};

}  // namespace dtrain::parallel
