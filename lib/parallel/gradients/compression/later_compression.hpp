#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/encoding.hpp"
#include "parallel/gradients/compression/gradient_compression.hpp"

namespace dtrain::parallel {

/// A bucket that travels as it is.
class PlainEncoding final : public comm::Encoding {
 public:
  std::uint16_t id() const override { return 300; }
  bool takes_whole_buffers() const override { return false; }
  std::size_t bytes(std::size_t count) const override { return count * sizeof(float); }
  std::unique_ptr<comm::MessageRounds> begin(std::span<float> /*values*/, std::size_t /*first*/, int /*node*/,
                                             int /*nodes*/) override {
    return nullptr;
  }
  bool encodes() const override { return false; }
};

/// A compression that begins after the first steps of a training: their gradients are far from low rank, and
/// errors of the first steps are large. Until then all bits travel, and nothing is left out.
class LaterCompression final : public GradientCompression {
 public:
  /// `steps`: of the training, those of an earlier part of the run included.
  LaterCompression(std::unique_ptr<GradientCompression> later, std::int64_t steps)
      : later_(std::move(later)), steps_(steps) {}

  void lay_out(const FlatParameters& parameters, const std::vector<Range>& buckets,
               comm::Group& group) override {
    later_->lay_out(parameters, buckets, group);
  }
  void begin_step(std::int64_t number, std::int64_t samples) override;
  comm::Encoding& of(std::size_t bucket) override { return begun_ ? later_->of(bucket) : plain_; }
  std::string news() override;
  std::vector<StateTensor> state() const override { return later_->state(); }

 private:
  std::unique_ptr<GradientCompression> later_;
  std::int64_t steps_;
  bool begun_ = false;
  std::string news_;
  PlainEncoding plain_;
};

}  // namespace dtrain::parallel
