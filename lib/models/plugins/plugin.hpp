#pragma once

#include <torch/version.h>

#include <functional>
#include <string>
#include <vector>

#include "models/model.hpp"

namespace dtrain::models {

/// A loss of a plug-in, chosen with `--loss NAME`: the sum of the samples' losses as LossSums has it, `loss`
/// in the graph. Shapes: the last layer's outputs and the targets, as the model has them without `--loss`.
struct AddedLoss {
  std::string name;
  std::function<LossSums(const Tensors& outputs, const at::Tensor& targets)> sums;
};

/// What a plug-in adds. Its layers are part of its models.
struct Additions {
  std::vector<Registration> models;
  std::vector<AddedLoss> losses;
};

/// What the plug-in's one function returns. The stamp stays first in all versions.
struct Plugin {
  const char* stamp;
  void (*add)(Additions& additions);
};

}  // namespace dtrain::models

#define DTRAIN_PLUGIN_TEXT_OF(value) #value
#define DTRAIN_PLUGIN_TEXT(value) DTRAIN_PLUGIN_TEXT_OF(value)

/// What must be the same in a plug-in and the program: the plug-in version, the headers that a plug-in
/// includes (the target dtrain::plugin defines their hash), LibTorch, and how the compiler lays out classes
/// and strings. The program finds it in the file before anything of the file runs.
#define DTRAIN_PLUGIN_STAMP                                                                     \
  "dtrain-plugin-stamp{plug-in 1, headers " DTRAIN_PLUGIN_INTERFACE ", LibTorch " TORCH_VERSION \
  ", C++ ABI " DTRAIN_PLUGIN_TEXT(__GXX_ABI_VERSION) "/" DTRAIN_PLUGIN_TEXT(_GLIBCXX_USE_CXX11_ABI) "}"

/// Makes a library a plug-in; once in each. `add` fills Additions, and may add nothing: operators of
/// TORCH_LIBRARY are registered when the library is opened.
#define DTRAIN_PLUGIN(add)                                                                          \
  extern "C" __attribute__((visibility("default"))) const dtrain::models::Plugin* dtrain_plugin() { \
    static const dtrain::models::Plugin kPlugin = {DTRAIN_PLUGIN_STAMP, add};                       \
    return &kPlugin;                                                                                \
  }
