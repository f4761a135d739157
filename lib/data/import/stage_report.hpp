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
  enum class Kind { numbers, labels, dates };
  Kind kind = Kind::numbers;
  std::int64_t gaps = 0;
  std::int64_t values = 0;          ///< That are there, in all rows.
  std::vector<std::string> labels;  ///< Of text.
  std::string first_date;           ///< Of dates, as is `last_date`.
  std::string last_date;
  bool has_times = false;      ///< Of dates: some have a time.
  bool is_constant = false;    ///< All values are equal, and there are some.
  bool looks_like_id = false;  ///< Whole numbers or labels, each row another one.
};

/// What staging made of its originals, for people.
struct StageReport {
  std::vector<ColumnReport> columns;           ///< Of a table, in its order; else empty.
  std::vector<std::int64_t> samples_of_class;  ///< Of train, by class; empty where there are none.
  std::vector<std::string> remarks;            ///< What was left out or changed, a sentence each.
};

}  // namespace dtrain::data
