#include "doctor/finding.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

#include "core/counted.hpp"

namespace dtrain::doctor {
namespace {

constexpr char kField = '\x1f';   // ASCII's unit separator,
constexpr char kRecord = '\x1e';  // and its record separator

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

using RanksByNode = std::map<int, std::vector<int>>;

/// `finders` of those that were `asked`: as nodes where all asked ranks of each are among them.
std::string where_in_words(const RanksByNode& finders, const RanksByNode& asked,
                           const topology::Cluster& cluster) {
  if (finders == asked) return {};
  std::vector<std::string> hosts;
  std::vector<int> ranks;
  bool whole = true;
  for (const auto& [node, members] : finders) {
    hosts.push_back(cluster.ranks[static_cast<std::size_t>(members.front())].hostname);
    whole = whole && members == asked.at(node);
    ranks.insert(ranks.end(), members.begin(), members.end());
  }
  const bool one_node = asked.size() == 1;
  const std::string on = fmt::format("{}", fmt::join(hosts, ", "));
  if (whole && !one_node) return on;
  std::ranges::sort(ranks);
  return one_node ? numbered("rank", ranks) : fmt::format("{} on {}", numbered("rank", ranks), on);
}

}  // namespace

Finding good(std::string what, std::string text) {
  return {.level = Level::good, .what = std::move(what), .text = std::move(text), .remedy = {}};
}

Finding note(std::string what, std::string text, std::string remedy) {
  return {
      .level = Level::note, .what = std::move(what), .text = std::move(text), .remedy = std::move(remedy)};
}

Finding problem(std::string what, std::string text, std::string remedy) {
  return {
      .level = Level::problem, .what = std::move(what), .text = std::move(text), .remedy = std::move(remedy)};
}

std::vector<Finding> problems_in(const std::vector<Finding>& findings) {
  std::vector<Finding> problems;
  std::ranges::copy_if(findings, std::back_inserter(problems),
                       [](const Finding& finding) { return finding.level == Level::problem; });
  return problems;
}

std::vector<SharedFinding> merge(const std::vector<std::vector<Finding>>& by_rank,
                                 const topology::Cluster& cluster, Asked asked) {
  RanksByNode all;
  for (const auto& place : cluster.ranks) {
    if (asked == Asked::ranks || place.local_rank == 0) all[place.node].push_back(place.rank);
  }
  std::vector<std::pair<Finding, RanksByNode>> different;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (const Finding& finding : by_rank[rank]) {
      auto known = std::ranges::find(different, finding, &std::pair<Finding, RanksByNode>::first);
      if (known == different.end()) known = different.insert(known, {finding, {}});
      known->second[cluster.ranks[rank].node].push_back(static_cast<int>(rank));
    }
  }
  std::vector<SharedFinding> merged;
  for (const auto& [finding, finders] : different) {
    merged.push_back({finding, where_in_words(finders, all, cluster)});
  }
  return merged;
}

std::string to_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{}{}{}{}{}{}{}{}", static_cast<int>(finding.level), kField, finding.what, kField,
                        finding.text, kField, finding.remedy, kRecord);
  }
  return text;
}

std::vector<Finding> from_text(const std::string& text) {
  std::vector<Finding> findings;
  for (const std::string& record : split(text, kRecord)) {
    auto fields = split(record, kField);
    fields.resize(4);
    findings.push_back({.level = static_cast<Level>(fields[0].empty() ? 0 : fields[0].front() - '0'),
                        .what = fields[1],
                        .text = fields[2],
                        .remedy = fields[3]});
  }
  return findings;
}

}  // namespace dtrain::doctor
