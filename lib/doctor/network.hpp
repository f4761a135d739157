#pragma once

#include <string>
#include <vector>

#include "comm/survey/clock_offsets.hpp"
#include "comm/survey/link_speeds.hpp"
#include "doctor/finding.hpp"

namespace dtrain::doctor {

/// `hosts`: by node.
std::vector<Finding> judge_clocks(const std::vector<comm::ClockOffset>& offsets,
                                  const std::vector<std::string>& hosts);

/// What a link of these nodes can be expected to carry: the median over the nodes of each one's fastest link.
/// (The median of all links would be a slow one already where one of three nodes is slow.)
double expected_speed(const std::vector<comm::LinkSpeed>& links);

/// The links that carry less than half of what can be expected.
std::vector<comm::LinkSpeed> slow_links(const std::vector<comm::LinkSpeed>& links);

std::vector<Finding> judge_links(const std::vector<comm::LinkSpeed>& links,
                                 const std::vector<std::string>& hosts);

}  // namespace dtrain::doctor
