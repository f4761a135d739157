#pragma once

#include <functional>
#include <string>
#include <vector>

#include "train/config/config.hpp"

namespace dtrain::app {

/// One option of a run: its flag, its key in a configuration file, its line in the help and its default are
/// all made from this.
struct Option {
  enum class Kind {
    value,   ///< `--epochs 3`, `epochs = 3`
    toggle,  ///< `--trace`, `trace = true`
    list,    ///< `--model-option A=1 --model-option B=2`, `model-option = ["A=1", "B=2"]`
  };
  std::string name;  ///< Without dashes.
  Kind kind = Kind::value;
  std::string argument;  ///< What the value stands for in the help, e.g. `N`.
  std::string group;     ///< Heading in the help.
  std::string help;      ///< Half a sentence.
  std::string fallback;  ///< The default, in words for the help.

  /// Takes one value as it was written. Throws Error (exit code 2) when it cannot be read.
  std::function<void(train::RunConfig&, const std::string& text)> set;
  /// The value in force as it stands behind `=` in TOML; empty when there is none.
  std::function<std::string(const train::RunConfig&)> toml;
};

/// All options of `train`, in the order of the help.
const std::vector<Option>& run_options();

/// Applies one given value and remembers that it was given.
void apply(const Option& option, const std::string& text, train::RunConfig& config);

/// The configuration in force, as a TOML file that `--config` takes.
std::string to_toml(const train::RunConfig& config);

}  // namespace dtrain::app
