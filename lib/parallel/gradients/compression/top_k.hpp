#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "comm/encoding.hpp"
#include "core/slice.hpp"
#include "parallel/gradients/compression/kept_error.hpp"
#include "parallel/gradients/flat_parameters.hpp"

namespace dtrain::parallel {

/// The places of the `count` largest values by size, ascending; of equal ones the first. What is not a number
/// counts as the largest.
std::vector<std::uint32_t> largest_places(std::span<const float> values, std::size_t count);

/// A bucket of which each node sends the largest values by size, with what it has not sent yet, and keeps
/// the rest. 8 bytes a value, from each node to each other.
/// Source: Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory", NeurIPS 2018; Lin et al., "Deep
/// Gradient Compression", ICLR 2018.
class TopKEncoding final : public comm::Encoding {
 public:
  /// `share`: of the values, in (0, 1); at least one travels. `error`: of the bucket, as long as it; null
  /// where this rank does not carry for its node. `samples`: of the step that begins, whose gradients the
  /// bucket sums.
  TopKEncoding(double share, float* error, const float& samples)
      : share_(share), error_(error), samples_(samples) {}

  std::uint16_t id() const override { return 101; }
  bool takes_whole_buffers() const override { return true; }
  std::size_t bytes(std::size_t count) const override { return 8 * sent_of(count); }
  std::unique_ptr<comm::MessageRounds> begin(std::span<float> values, std::size_t first, int node,
                                             int nodes) override;

  /// How many of so many values travel.
  std::size_t sent_of(std::size_t count) const;

 private:
  double share_;
  float* error_;
  const float& samples_;
};

/// The largest values of all buckets, with what is kept.
class TopKGradients final : public ErrorFeedback {
 public:
  explicit TopKGradients(double share) : share_(share) {}

  void lay_out(const FlatParameters& parameters, const std::vector<Range>& buckets,
               comm::Group& group) override;
  comm::Encoding& of(std::size_t bucket) override { return encodings_.at(bucket); }

 private:
  double share_;
  std::deque<TopKEncoding> encodings_;
};

}  // namespace dtrain::parallel
