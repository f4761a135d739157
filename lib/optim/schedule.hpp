#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrain::optim {

/// How the learning rate runs over the steps.
struct ScheduleConfig {
  std::string name = "constant";  ///< One of schedule_names().
  double learning_rate = 1e-3;    ///< The highest rate.
  int warmup_steps = 0;           ///< Linear rise before the schedule proper.
  double least_rate = 0.0;        ///< What the schedule falls to; the warm-up may begin below it.

  /// Throws Error (exit code 2), naming the option, at the first value that cannot work.
  void validate() const;
};

/// constant, step, cosine, one_cycle, linear, wsd.
const std::vector<std::string>& schedule_names();

/// The rate of update number `step`, which counts from 1 to `total_steps`; a pure function.
/// During the warm-up it is learning_rate x step / (warmup_steps + 1); then, with t in [0, 1) the fraction of
/// the remaining steps done before this one:
///   constant   1
///   step       1, 0.1 from t = 1/2, 0.01 from t = 3/4 (He et al. 2016)
///   cosine     (1 + cos(pi t)) / 2 (Loshchilov and Hutter 2017)
///   linear     1 - t
///   wsd        1, falling linearly to 0 over the last fifth (warm-up, stable, decay; Hu et al. 2024)
///   one_cycle  PyTorch's OneCycleLR with its defaults: from 1/25 up to 1 over 30 % of the steps, down to
///              1/250,000 (Smith and Topin 2019); momentum is left as it is
/// With a least rate cosine, linear, wsd and one_cycle fall to it instead of to their own ends, as with
/// PyTorch's eta_min, end_factor and final_div_factor; step does not fall below it.
double learning_rate(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total_steps);

/// A recipe's warm-up in a run of `total_steps`: half of these where it would not end before them.
int shortened_warmup(int recipe_steps, std::int64_t total_steps);

/// What a gradient of norm `norm` is multiplied by so that it does not exceed `limit`; 1 when limit is 0.
/// limit / (norm + 1e-6), at most 1, as torch.nn.utils.clip_grad_norm_.
double clip_coefficient(double norm, double limit);

}  // namespace dtrain::optim
