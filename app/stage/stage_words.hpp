#pragma once

#include <string>

#include "data/import/stage.hpp"
#include "data/synthetic/synthetic.hpp"
#include "options/command_line.hpp"

namespace dtrain::app {

/// What the command line of `stage` says, before it is checked.
struct StageWords {
  data::StageOptions options;
  data::SyntheticSpec synthetic;
  std::string from;
  std::string data_root = "data/staged";
  std::string validation;
  std::string test;
  std::string image_size;
  std::string shards;
  std::string seed;
  std::string samples;
  std::string task;
  std::string vocabulary_size;
  std::string min_frequency;
  std::string max_length;
};

/// Declares the options of `stage`, which `words` receives.
void bind(StageWords& words, Parser& parser);

}  // namespace dtrain::app
