#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "comm/group.hpp"
#include "core/span_sink.hpp"
#include "models/compute/gradient_place.hpp"
#include "models/model.hpp"
#include "parallel/gradients/flat_parameters.hpp"
#include "parallel/gradients/gradient_sums.hpp"
#include "parallel/memory/memory_meter.hpp"

namespace dtrain::parallel {

/// A linear layer that is trained as a whole, and takes one row per sample.
struct TrainedProduct {
  models::Parameter* weight = nullptr;  ///< [out, in]
  models::Parameter* bias = nullptr;    ///< [out]
};

/// The products of a model of which nothing else is trained; empty: something else is, or nothing.
std::vector<TrainedProduct> trained_products(const models::Model& model);

/// What a step has at most.
struct LargestStep {
  std::int64_t samples = 1;  ///< Over all ranks.
  int micro_batches = 1;     ///< Over all ranks; each has an even share of the samples, rounded up, at most.
};

/// Gradient sums of linear layers, for one rank or for ranks of one node that share the parameters' memory,
/// each of which updates its rows of each weight. No rank makes a gradient of its own samples, and nothing is
/// reduced: each leaves the factors X and dY of its samples where all ranks read them, and then makes its own
/// rows of dW = dY^T X over the samples of all ranks. So a node writes each gradient once, not once per rank
/// and once more for the sum. Samples are added up in their order in the step, whichever rank computed them:
/// the sums have the same bits on any number of ranks.
///
/// It pays where the factors are smaller than the weights.
class ProductSums final : public GradientSums {
 public:
  /// Elements of the factors of such a step, of all ranks together; 0 where that is more than the weights
  /// have.
  static std::int64_t factor_elements(const std::vector<TrainedProduct>& products, const LargestStep& step);
  /// Whether the factors are smaller than the weights, and this rank has the kernels, which use one thread.
  static bool pays(const std::vector<TrainedProduct>& products, const LargestStep& step);

  /// Null on all ranks where they share no memory, or not all of them can. `products`: all that `parameters`
  /// has. `sink`, borrowed, learns how long gradients take. `wanted`: on this rank. Collective over `group`,
  /// and blocking.
  static std::unique_ptr<ProductSums> make(FlatParameters& parameters,
                                           const std::vector<TrainedProduct>& products, comm::Group& group,
                                           const LargestStep& step, SpanSink& sink, bool wanted);

  void begin_step(int micro_batches) override;
  /// Takes over the factors of the micro-batch.
  void taken_back(int index) override;
  /// Never: its parameters are of one rank's layers. Throws Error.
  void expect_share(const models::Parameter* parameter) override;
  void add_share(const models::Parameter* parameter, const at::Tensor& gradient) override;
  void finish(const std::function<void()>& exchange_shares = {}) override;
  const at::Tensor& gradients() const override { return gradients_; }
  bool updates_parts() const override { return group_.size() > 1; }
  const std::vector<Range>& update_parts() const override { return update_parts_; }
  std::vector<Range> shared_out() const override;
  const std::vector<Range>& own_parts() const override { return update_parts_; }

 private:
  struct Product {
    Product(const TrainedProduct& trained, const FlatParameters& parameters);
    models::Parameter* weight;
    std::int64_t weight_offset;  // in the flat gradient
    std::int64_t bias_offset;
    std::int64_t in;
    std::int64_t out;
    models::ProductFactors given;  // by the micro-batch that passes backward
    at::Tensor inputs;             // [places, in], of all ranks: each micro-batch has its places
    at::Tensor output_gradients;   // [places, out]
  };
  ProductSums(FlatParameters& parameters, const std::vector<TrainedProduct>& products, comm::Group& group,
              const LargestStep& step, SpanSink& sink, std::unique_ptr<comm::SharedBuffer> memory);
  static std::size_t bytes_for(const std::vector<TrainedProduct>& products, const LargestStep& step,
                               int ranks);

  /// What a rank tells of its micro-batches, in memory that all ranks read: their number, then each one's
  /// index and samples.
  std::int64_t* told_by(int rank) const;
  std::vector<std::int64_t> samples_told() const;
  at::Tensor rows(const at::Tensor& places, const std::vector<std::int64_t>& samples) const;
  void choose_parts(const FlatParameters& parameters);
  template <class T>
  void multiply(const Product& product, const std::vector<std::int64_t>& samples);

  comm::Group& group_;
  LargestStep step_;
  SpanSink& sink_;
  std::int64_t most_;                           // samples of a micro-batch
  std::unique_ptr<comm::SharedBuffer> memory_;  // of all ranks
  MemoryCharge charge_;                         // this rank's share of it
  at::Tensor gradients_;
  std::vector<Product> products_;
  std::deque<models::GradientPlace> places_;  // by product
  std::vector<FlatParameters::Entry> entries_;
  std::vector<Range> update_parts_;  // by entry
  int micro_batches_ = 0;            // of this rank in this step
};

}  // namespace dtrain::parallel
