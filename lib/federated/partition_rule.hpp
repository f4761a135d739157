#pragma once

#include <cstdint>
#include <string>

namespace dtrain::federated {

/// How training samples are dealt to clients, as `--partition` says.
struct PartitionRule {
  enum class Kind : std::uint8_t {
    iid,        ///< By chance, equally many each.
    dirichlet,  ///< Of each class a share drawn from a Dirichlet distribution: `dirichlet=A`.
    classes,    ///< K classes each, and of a class equally many as its other owners: `classes=K`.
    quantity,   ///< By chance, the numbers of samples drawn from a Dirichlet distribution: `quantity=A`.
    sites,      ///< To the owners that the dataset names.
    pooled,     ///< All to one client: training in one place, to compare with.
  };
  Kind kind = Kind::iid;
  double concentration = 0;  ///< A, positive: the smaller, the more clients differ.
  int classes = 0;           ///< K, at least 1.

  /// Throws Error (exit code 2) naming --partition.
  static PartitionRule parse(const std::string& text);

  bool needs_classes() const { return kind == Kind::dirichlet || kind == Kind::classes; }
};

}  // namespace dtrain::federated
