#pragma once

#include <cstdint>
#include <optional>

namespace dtrain::parallel {

/// Brings the weights of a layer while the layer computes, and takes them away again. All ranks of the data
/// axis make the same calls in one order, whether they compute or not.
class LayerWeights {
 public:
  virtual ~LayerWeights() = default;

  /// Layer `layer` (index in the model) is about to compute; `next` follows it, or may be the same again.
  /// Collective over the data axis.
  virtual void bring(std::int64_t layer, std::optional<std::int64_t> next) = 0;

  enum class Pass { forward, backward };
  /// The layer has computed; after backward no gradient of this pass follows for it.
  virtual void drop(std::int64_t layer, Pass pass) = 0;
};

}  // namespace dtrain::parallel
