#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace dtrain::data {

/// What became of a column of a table.
struct ColumnReport {
  std::string name;
  enum class Role { input, target, site, ignored };
  Role role = Role::input;
  bool numeric = true;
  std::int64_t gaps = 0;
  std::int64_t values = 0;          ///< That are there, in all rows.
  std::vector<std::string> labels;  ///< Of text.
  bool is_constant = false;         ///< All values are equal, and there are some.
  bool looks_like_id = false;       ///< Whole numbers, each row another one.
};

/// What staging made of its originals, for people.
struct StageReport {
  std::vector<ColumnReport> columns;           ///< Of a table, in its order; else empty.
  std::vector<std::int64_t> samples_of_class;  ///< Of train, by class; empty where there are none.
  std::vector<std::string> remarks;            ///< What was left out or changed, a sentence each.
};

}  // namespace dtrain::data
