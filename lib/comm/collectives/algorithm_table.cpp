#include "comm/collectives/algorithm_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <system_error>
#include <utility>

#include "comm/groups.hpp"
#include "comm/mpi/communicator.hpp"
#include "core/error.hpp"
#include "core/parse_number.hpp"

namespace dtrain::comm {
namespace {

// MPI's own is not among them: it does not promise the same bits on all ranks.
constexpr std::array kCandidates = {Algorithm::tree, Algorithm::ring, Algorithm::hierarchical};

/// `NAME: TABLE` in a file of such lines.
std::string line_of(const std::string& cache, const std::string& name) {
  std::ifstream file(cache);
  std::string found;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ": ")) found = line.substr(name.size() + 2);  // the newest is the last
  }
  return found;
}

/// Jobs may do so at once: a line is one write.
void keep(const std::string& cache, const std::string& name, const AlgorithmTable& table) {
  if (cache.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(cache).parent_path(), ignored);
  std::ofstream(cache, std::ios::app) << fmt::format("{}: {}\n", name, table.to_string());
}

/// Over all data groups, which share the links: the slowest's times.
AlgorithmTable measure(Groups& groups, const Communicator& world) {
  const MeasurementPlan plan = {
      .sizes = {std::size_t{4} << 10, std::size_t{64} << 10, std::size_t{1} << 20, std::size_t{8} << 20},
      .rounds = 3,
      .turn_s = 0.005,
      .largest_tree_bytes = std::size_t{64} << 10};
  auto measured = measure_all_reduce(groups.data(), plan, {kCandidates.begin(), kCandidates.end()});
  for (Measurement& one : measured) one.median_s = world.max(one.median_s);
  return AlgorithmTable::fastest(measured);
}

}  // namespace

AlgorithmTable AlgorithmTable::fastest(const std::vector<Measurement>& measured) {
  std::map<std::size_t, const Measurement*> best;
  for (const Measurement& one : measured) {
    const Measurement*& place = best.try_emplace(one.bytes, &one).first->second;
    if (one.median_s < place->median_s) place = &one;
  }
  std::vector<Entry> entries;
  for (auto place = best.begin(); place != best.end(); ++place) {
    const auto next = std::next(place);
    const double limit = next == best.end() ? static_cast<double>(place->first)
                                            : std::sqrt(static_cast<double>(place->first)) *
                                                  std::sqrt(static_cast<double>(next->first));
    const Entry entry = {static_cast<std::size_t>(limit), parse_algorithm(place->second->algorithm)};
    if (!entries.empty() && entries.back().algorithm == entry.algorithm) entries.pop_back();
    entries.push_back(entry);
  }
  return AlgorithmTable(std::move(entries));
}

std::string AlgorithmTable::to_string() const {
  std::string text;
  for (const Entry& entry : entries_) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", entry.up_to_bytes, name_of(entry.algorithm));
  }
  return text;
}

std::optional<AlgorithmTable> AlgorithmTable::parse(std::string_view text) {
  std::vector<Entry> entries;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(", "));
    text.remove_prefix(std::min(text.size(), item.size() + 2));
    Entry entry;
    const auto bytes = leading_number<std::size_t>(item);
    const auto known = std::ranges::find_if(kCandidates, [name = bytes.rest](Algorithm candidate) {
      return fmt::format(" {}", name_of(candidate)) == name;
    });
    if (!bytes || known == kCandidates.end()) return std::nullopt;
    entry.up_to_bytes = bytes.value;
    if (!entries.empty() && entries.back().up_to_bytes >= entry.up_to_bytes) return std::nullopt;
    entry.algorithm = *known;
    entries.push_back(entry);
  }
  if (entries.empty()) return std::nullopt;
  return AlgorithmTable(std::move(entries));
}

std::optional<Algorithm> AlgorithmTable::at(std::size_t bytes) const {
  if (entries_.empty()) return std::nullopt;
  const auto place =
      std::ranges::find_if(entries_, [bytes](const Entry& e) { return bytes <= e.up_to_bytes; });
  return place == entries_.end() ? entries_.back().algorithm : place->algorithm;
}

AlgorithmTable cached_table(Groups& groups, const Communicator& world, const std::string& cache,
                            const std::string& name) {
  const std::string kept = world.broadcast(world.rank() == 0 ? line_of(cache, name) : std::string(), 0);
  if (const auto table = AlgorithmTable::parse(kept)) return *table;
  const AlgorithmTable table = measure(groups, world);
  if (world.rank() == 0) keep(cache, name, table);
  return table;
}

}  // namespace dtrain::comm
