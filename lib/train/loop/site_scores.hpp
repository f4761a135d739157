#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/group.hpp"
#include "train/loop/evaluation.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// What a classifier comes to on the samples of one owner.
struct SiteScore {
  std::int64_t samples = 0;
  double loss = 0;      ///< Mean cross-entropy; NaN without samples, as the others.
  double accuracy = 0;  ///< In [0, 1].
  double f1 = 0;        ///< Of the second of two classes; NaN with other numbers of them.
  double auc = 0;       ///< Likewise; NaN where all samples are of one class.
};

/// One sample of a classifier that was evaluated.
struct ScoredSample {
  double loss = 0;
  double target = 0;     ///< Its class.
  double predicted = 0;  ///< The most probable class.
  double score = 0;      ///< Of the second of two classes: its logit less that of the first.
};

/// `classes`: that there are.
SiteScore score_of(std::span<const ScoredSample> samples, int classes);

/// The area under the curve of true against false positives: the probability that a sample of class 1 has a
/// higher score than one of class 0, equal scores counting a half. NaN where all samples are of one class.
/// Source: Hanley and McNeil, Radiology 143, 1982.
double area_under_curve(std::span<const ScoredSample> samples);

/// The scores of a split by the owners of its rows, where a dataset names them and a classifier is trained.
class SiteScores {
 public:
  /// Whether there are owners, and a class for each sample.
  static bool has(const Workload& workload);

  /// Of a split of a workload for which has(). Throws Error (exit code 3).
  SiteScores(const Workload& workload, const std::string& split);

  /// For Evaluation::run().
  OutputSink sink();

  /// By site, the same on all ranks. `counts`: whether this rank's samples count, not another's of its tensor
  /// group. Collective over `world`.
  std::vector<SiteScore> agree(comm::Group& world, bool counts);

 private:
  void add(const BatchOutputs& batch);

  std::vector<std::int32_t> sites_of_;
  int sites_;
  int classes_;
  std::vector<ScoredSample> samples_;  // by id
};

}  // namespace dtrain::train
