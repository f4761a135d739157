#pragma once

#include <map>
#include <optional>
#include <string>

#include "comm/faults/injection.hpp"
#include "train/loop/evaluation.hpp"
#include "train/loop/replica.hpp"
#include "train/setup/job.hpp"
#include "train/setup/workload.hpp"

namespace dtrain::train {

/// A loader reads in a thread of its own where a core is left for it.
data::LoaderOptions loader_options(const Job& job);

/// The model of a run measured on whole splits of its dataset. The loader of a split is made when it is first
/// needed, and kept.
class Evaluations {
 public:
  /// All are borrowed. `injection`: null: no fault is wanted. `files_limit_s`: longest that opening a split's
  /// files may take.
  Evaluations(Job& job, const Workload& workload, Replica& replica, comm::Injection* injection,
              double files_limit_s)
      : job_(job),
        workload_(workload),
        replica_(replica),
        injection_(injection),
        files_limit_s_(files_limit_s) {}

  /// Nothing where the split has no samples. `sink`: as of Evaluation::run(). Collective.
  std::optional<EvaluationResult> run(const std::string& split, const OutputSink& sink = {});

 private:
  Job& job_;
  const Workload& workload_;
  Replica& replica_;
  comm::Injection* injection_;
  double files_limit_s_;
  std::map<std::string, Evaluation> of_split_;
};

}  // namespace dtrain::train
