#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "models/model.hpp"
#include "parallel/pipeline/stage_cuts.hpp"

namespace dtrain::plan {

/// The parameters of the stages that a rank of a pipeline has, in elements.
class HeldParameters {
 public:
  HeldParameters(const models::Model& model, const parallel::StageCuts& cuts, int pipe_index);

  double all() const { return sum_of(&Layer::all); }
  double trained() const { return sum_of(&Layer::trained); }
  /// Of a layer's parameters, what is not trained.
  double frozen_share(std::size_t layer) const;
  /// The largest tensor that is trained of a layer's.
  double largest_of(std::size_t layer) const { return layers_[layer].largest; }
  /// Of the trained ones, those in parameters of `least` or more.
  double in_large_ones(std::int64_t least) const;
  double of_largest_tensor() const;
  double of_largest_layer() const;
  /// What a layer uses and the next one, where that is most.
  double of_two_layers() const;
  double of_largest_bucket(std::int64_t bucket_bytes, double element_bytes) const;

 private:
  struct Layer {
    double all = 0;
    double trained = 0;
    double largest = 0;
    int stage = -1;              // of this rank
    std::set<std::size_t> used;  // layers whose parameters it computes with
  };
  double sum_of(double Layer::*count) const;

  std::vector<Layer> layers_;
  std::vector<std::int64_t> sizes_;  // of the trained ones
  std::map<const models::Parameter*, std::size_t> owners_;
};

}  // namespace dtrain::plan
