#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/group.hpp"
#include "train/loop/evaluation.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// What a classifier comes to on the samples of one owner, or client.
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

/// `classes`: that there are. `weights` [classes]: how much a sample of each class counts, none negative;
/// empty: all alike. Samples that count nothing are left out.
SiteScore score_of(std::span<const ScoredSample> samples, int classes, std::span<const double> weights = {});

/// The area under the curve of true against false positives: the probability that a sample of class 1 has a
/// higher score than one of class 0, equal scores counting a half. NaN where all samples are of one class.
/// Source: Hanley and McNeil, Radiology 143, 1982.
double area_under_curve(std::span<const ScoredSample> samples);

/// The samples of a split as a classifier took them, for scores by the owners of its rows and by clients.
class SplitScores {
 public:
  /// Whether there is a class for each sample, and a classifier.
  static bool has(const Workload& workload);

  /// Of a split of a workload for which has(). Throws Error (exit code 3).
  SplitScores(const Workload& workload, const std::string& split);

  /// For Evaluation::run().
  OutputSink sink();

  /// After Evaluation::run(): all samples, on all ranks. `counts`: whether this rank's samples count, not
  /// another's of its tensor group. Collective over `world`.
  void agree(comm::Group& world, bool counts);

  /// After agree(). Of one site's samples, and of each site; none where the dataset names no owners of its
  /// rows.
  SiteScore of_site(int site) const;
  std::vector<SiteScore> by_site() const;
  /// Of all samples, each class counting as `shares` [classes] says, whatever the split has of it; a class
  /// that the split has none of counts nothing.
  SiteScore with_classes(std::span<const std::int64_t> shares) const;

  /// Before another model is evaluated.
  void clear();

 private:
  void add(const BatchOutputs& batch);

  std::vector<std::int32_t> sites_of_;  // empty: there are none
  int sites_;
  int classes_;
  std::vector<ScoredSample> samples_;  // by id
};

}  // namespace dtrain::train
