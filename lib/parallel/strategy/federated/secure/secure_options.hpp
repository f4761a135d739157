#pragma once

#include <string>

namespace dtrain::parallel {

/// What users choose of secure sums in `fedavg`.
struct SecureOptions {
  /// `off`; `on`; or `unmasked`: the same integers without masks, to compare with.
  std::string masks = "off";
  int threshold = 0;  ///< Fewest clients of a sum; 0: two thirds of those of a round.
  int ring = 32;      ///< Bits of the integers in which masks cancel: 32 or 64.
  int bits = 0;       ///< Of a value; 0: as many as fit, at most kMostUsualBits.
  double clip = 1;    ///< Largest value of an update; with noise its largest norm, too.
  /// Deviation of the sum's noise, in multiples of `clip`; 0: none. Comes with StrategyOptions::dp_clip:
  /// secure_options().
  double noise = 0;

  static constexpr int kMostUsualBits = 24;   ///< What a float has.
  static constexpr int kFewestUsualBits = 8;  ///< With fewer, updates are noise.

  /// With noise, what an update is clipped to: roundings of its elements to floats may make it that much
  /// longer.
  double largest_norm() const { return clip * (1 - 0x1p-20); }

  bool on() const { return masks != "off"; }
  bool masked() const { return masks == "on"; }
};

}  // namespace dtrain::parallel
