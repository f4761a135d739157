#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace dtrain::parallel {

/// What the server does with the mean update D of a round: x += rate D, or with the moments m and v of D:
/// momentum (FedAvgM): m = beta1 m + D, x += rate m;
/// adam (FedAdam): m = beta1 m + (1 - beta1) D, v = beta2 v + (1 - beta2) D^2, x += rate m / (sqrt(v) + tau);
/// yogi (FedYogi): the same with v -= (1 - beta2) D^2 sign(v - D^2).
/// v begins with tau^2, and nothing corrects its bias. Sources: Hsu, Qi and Brown, "Measuring the effects of
/// non-identical data distribution for federated visual classification", 2019; Reddi et al., "Adaptive
/// Federated Optimization", ICLR 2021, algorithm 2.
class ServerUpdate {
 public:
  static constexpr double kBeta2 = 0.99;
  static constexpr double kTau = 1e-3;
  struct Config {
    std::string optimizer = "none";  ///< `none`, `momentum`, `adam` or `yogi`.
    double rate = 1;
    double beta1 = 0.9;
  };
  /// For as many values as `like` [n], of its type.
  ServerUpdate(const Config& config, const at::Tensor& like);

  /// Updates values [n] by the mean update [n], which is changed.
  void apply(at::Tensor& values, at::Tensor& mean);

  struct Moments {
    const char* name;   ///< As in checkpoints.
    at::Tensor values;  ///< [n]; writing to it restores it.
  };
  const std::vector<Moments>& state() const { return moments_; }

 private:
  Config config_;
  std::vector<Moments> moments_;
};

}  // namespace dtrain::parallel
