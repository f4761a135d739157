#pragma once

#include <string>
#include <vector>

#include "models/plugins/load.hpp"
#include "options/command_line.hpp"

namespace dtrain::app {

/// `--plugin FILE`, of each command that makes a model. Of the command line alone: a file that others made,
/// a configuration or a checkpoint, must not say which code runs. Pass the files to models::load_plugins()
/// before anything is read that may need them.
inline void bind_plugins(Parser& parser, std::vector<std::string>& files) {
  parser
      .add_option("--plugin", files,
                  "open a library of yours with operators, models or losses; repeat it for several")
      ->option_text("FILE.so")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace dtrain::app
