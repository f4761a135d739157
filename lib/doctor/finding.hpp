#pragma once

#include <string>
#include <vector>

#include "topology/cluster.hpp"

namespace dtrain::doctor {

enum class Level {
  good,
  note,    ///< Works, and could work better.
  problem  ///< A job would not work, or would not do what was meant.
};

/// One thing that was looked at before a job. A plain value: it travels between ranks, tests invent it.
struct Finding {
  Level level = Level::good;
  std::string what;    ///< A word or two: the first column.
  std::string text;    ///< What was found, in one line.
  std::string remedy;  ///< What to do about it, as an imperative; empty where all is good.

  bool operator==(const Finding&) const = default;
};

Finding good(std::string what, std::string text);
Finding note(std::string what, std::string text, std::string remedy);
Finding problem(std::string what, std::string text, std::string remedy);

/// Only those of `findings` that are problems.
std::vector<Finding> problems_in(const std::vector<Finding>& findings);

/// A finding of several ranks.
struct SharedFinding {
  Finding finding;
  std::string where;  ///< `node2`, or `ranks 2, 3 on node2`; empty: all that were asked.
};

/// Which ranks were to find something: each rank, or the first of each node for all of them.
enum class Asked { ranks, nodes };

/// The different ones among what each rank of `cluster` has found, in order of first appearance, each with
/// the ranks that found it.
std::vector<SharedFinding> merge(const std::vector<std::vector<Finding>>& by_rank,
                                 const topology::Cluster& cluster, Asked asked);

/// As one text, to be gathered from all ranks, and back.
std::string to_text(const std::vector<Finding>& findings);
std::vector<Finding> from_text(const std::string& text);

}  // namespace dtrain::doctor
