#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/encoding.hpp"
#include "comm/group.hpp"
#include "core/slice.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/strategy/state_view.hpp"

namespace dtrain::parallel {

/// What `--compression` says of gradients between nodes.
struct CompressionChoice {
  enum class Kind : std::uint8_t { none, fp16, bf16, int8, powersgd, topk, automatic };
  Kind kind = Kind::none;
  int rank = 0;      ///< Of powersgd.
  double share = 0;  ///< Of topk: of the values, in (0, 0.5].

  /// none, fp16, bf16, int8, powersgd=R, topk=F, auto. Throws Error (exit code 2).
  static CompressionChoice parse(std::string_view text);
  explicit operator bool() const { return kind != Kind::none; }
  /// Whether what a step leaves out is kept for later steps.
  bool keeps_error() const { return kind == Kind::powersgd || kind == Kind::topk; }
};

/// How the buckets of a step's gradient are summed between nodes. Within a node they have all bits.
class GradientCompression {
 public:
  GradientCompression() = default;
  virtual ~GradientCompression() = default;
  GradientCompression(const GradientCompression&) = delete;
  GradientCompression& operator=(const GradientCompression&) = delete;

  /// Once, before the first step. `buckets`: what of the flat gradient travels together. `group`: that sums
  /// it; borrowed.
  virtual void lay_out(const FlatParameters& parameters, const std::vector<Range>& buckets,
                       comm::Group& group) = 0;
  /// Before the first bucket of step `number` leaves, which sums the gradients of `samples` samples of all
  /// ranks. May be collective over the group.
  virtual void begin_step(std::int64_t number, std::int64_t samples) = 0;
  virtual comm::Encoding& of(std::size_t bucket) = 0;
  /// What it has decided since the last call, as a sentence for the user; empty: nothing.
  virtual std::string news() { return {}; }
  /// What it keeps from step to step, as this rank has it. Valid between steps.
  virtual std::vector<StateTensor> state() const { return {}; }
};

/// Null where nothing is to be compressed. `seed`: of the run. `after`: so many steps of the training in all
/// their bits.
std::unique_ptr<GradientCompression> make_compression(const CompressionChoice& choice, std::uint64_t seed,
                                                      std::int64_t after = 0);

}  // namespace dtrain::parallel
