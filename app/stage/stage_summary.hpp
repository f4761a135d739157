#pragma once

#include <string>

#include "data/import/stage_report.hpp"
#include "data/shards/dataset.hpp"

namespace dtrain::app {

/// What `stage` says at its end: the task, the shape of a sample, classes and their shares of train, what
/// became of each column of a table (of many the first), and remarks. Lines that end with a newline.
std::string stage_summary(const data::DatasetInfo& info, const data::StageReport& report);

}  // namespace dtrain::app
