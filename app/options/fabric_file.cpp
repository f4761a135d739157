#include "options/fabric_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/nesting.hpp"
#include "core/outside.hpp"
#include "core/printable.hpp"
#include "core/regular_file.hpp"

namespace dtrain::app {
namespace {

using topology::Fabric;

constexpr std::size_t kMostOfFabric = std::size_t{1} << 20;
constexpr const char* kPage = "docs/parallelism.md shows a file";

/// A table of the file, with its place for errors.
class Section {
 public:
  Section(const toml::table& table, std::string name, const std::string& file)
      : table_(table), name_(std::move(name)), file_(file) {}

  std::string where() const { return fmt::format("line {}", table_.source().begin.line); }

  void only(const std::vector<std::string_view>& known) const {
    for (const auto& [key, node] : table_) {
      if (std::ranges::find(known, key.str()) != known.end()) continue;
      fail(node, fmt::format("there is no key {}", printable(key.str(), 100)),
           fmt::format("use {}", fmt::join(known, ", ")));
    }
  }
  std::optional<double> number(const char* key) const {
    const auto* node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    if (const auto value = node->value<double>()) return *value;
    fail(*node, fmt::format("{} is not a number", key), kPage);
  }
  std::optional<std::int64_t> integer(const char* key) const {
    const auto* node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    if (const auto* value = node->as_integer()) return value->get();
    fail(*node, fmt::format("{} is not a whole number", key), kPage);
  }
  int rank(const char* key) const {
    const auto value = integer(key);
    if (!value) fail(table_, fmt::format("{} is missing", key), kPage);
    return as_int(*value);
  }
  std::vector<int> list(const char* key) const {
    const auto* node = table_.get(key);
    std::vector<int> values;
    if (node == nullptr) return values;
    const auto* array = node->as_array();
    if (array == nullptr) fail(*node, fmt::format("{} is not a list", key), "write one such as [0, 1]");
    for (const auto& item : *array) {
      const auto* value = item.as_integer();
      if (value == nullptr)
        fail(item, fmt::format("{} holds no whole number", key), "write one such as [0, 1]");
      values.push_back(as_int(value->get()));
    }
    return values;
  }
  std::optional<std::string> text(const char* key) const {
    const auto* node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    if (const auto* value = node->as_string()) return value->get();
    fail(*node, fmt::format("{} is not text", key), kPage);
  }
  [[noreturn]] void fail(const toml::node& node, const std::string& problem, std::string_view advice) const {
    const auto name = name_.empty() ? std::string() : name_ + ": ";
    throw usage_error(name + problem, fmt::format("{}, line {}", file_, node.source().begin.line), advice);
  }

 private:
  /// What is no rank anyway stays none.
  static int as_int(std::int64_t value) {
    constexpr auto kLargest = std::int64_t{std::numeric_limits<int>::max()};
    return static_cast<int>(std::clamp(value, -kLargest, kLargest));
  }
  const toml::table& table_;
  std::string name_;
  const std::string& file_;
};

std::vector<Section> sections(const toml::table& table, const char* name, const std::string& file) {
  std::vector<Section> all;
  const auto* node = table.get(name);
  if (node == nullptr) return all;
  const auto* array = node->as_array();
  const Section whole(table, "", file);
  if (array == nullptr)
    whole.fail(*node, fmt::format("{} is no list", name), fmt::format("write [[{}]]", name));
  for (const auto& item : *array) {
    const auto* section = item.as_table();
    if (section == nullptr)
      whole.fail(item, fmt::format("{} is no table", name), fmt::format("write [[{}]]", name));
    all.emplace_back(*section, name, file);
  }
  return all;
}

void read_clock(const Section& whole, const toml::table& table, Fabric& fabric) {
  const auto clock = whole.text("clock").value_or("real");
  if (clock != "real" && clock != "virtual")
    whole.fail(*table.get("clock"), fmt::format("there is no clock \"{}\"", printable(clock, 100)),
               "use real or virtual");
  if (clock == "virtual") fabric.clock = Fabric::Clock::computed;
  const auto sample_us = whole.number("compute_us_per_sample");
  if (sample_us && fabric.clock == Fabric::Clock::real)
    whole.fail(*table.get("compute_us_per_sample"), "a real clock measures what a sample takes",
               "leave it out, or use clock = \"virtual\"");
  fabric.compute_s_per_sample = sample_us.value_or(0) * 1e-6;
  const auto encode_us = whole.number("encode_us_per_mb");
  if (encode_us && fabric.clock == Fabric::Clock::real)
    whole.fail(*table.get("encode_us_per_mb"), "a real clock measures what encoding takes",
               "leave it out, or use clock = \"virtual\"");
  fabric.encode_s_per_byte = encode_us.value_or(0) * 1e-12;
}

Fabric::Between read_link(const Section& section) {
  section.only({"nodes", "latency_ms", "gbit_per_s"});
  Fabric::Between found{.where = section.where()};
  const auto nodes = section.list("nodes");
  if (!nodes.empty()) {
    found.of_all = false;
    found.a = nodes.front();
    found.b = nodes.size() == 2 ? nodes.back() : nodes.front();  // another number joins no two nodes
  }
  found.link.latency_s = section.number("latency_ms").value_or(0) * 1e-3;
  if (const auto rate = section.number("gbit_per_s")) found.link.bytes_per_s = *rate * 1e9 / 8;
  return found;
}

}  // namespace

topology::Fabric parse_fabric(const std::string& text, const std::string& origin) {
  if (const std::string problem = refused_toml(text); !problem.empty())
    throw usage_error(problem, origin, kPage);
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw usage_error(
        fmt::format("line {}: {}", error.source().begin.line, printable(error.description(), 200)), origin,
        kPage);
  }
  const Section whole(table, "", origin);
  whole.only({"clock", "compute_us_per_sample", "encode_us_per_mb", "slow", "node", "link"});
  Fabric fabric{.file = origin};
  read_clock(whole, table, fabric);
  for (const auto& section : sections(table, "slow", origin)) {
    section.only({"rank", "factor", "from_step", "to_step"});
    Fabric::Slow slow{.rank = section.rank("rank"), .where = section.where()};
    slow.factor = section.number("factor").value_or(0);
    slow.first_step = section.integer("from_step").value_or(slow.first_step);
    slow.last_step = section.integer("to_step").value_or(slow.last_step);
    fabric.slow.push_back(slow);
  }
  for (const auto& section : sections(table, "node", origin)) {
    section.only({"ranks"});
    fabric.nodes.push_back(section.list("ranks"));
    fabric.where_nodes.push_back(section.where());
  }
  for (const auto& section : sections(table, "link", origin)) fabric.links.push_back(read_link(section));
  if (fabric.slow.empty() && fabric.nodes.empty() && !fabric.computes_times())
    throw usage_error("describes nothing that could be emulated", origin,
                      "add a [[slow]] rank, a [[node]], or clock = \"virtual\"");
  return fabric;
}

topology::Fabric read_fabric(const std::string& file) {
  try {
    return parse_fabric(read_regular_file(file, kMostOfFabric, ExitCode::usage), file);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw usage_error(problem_of(error), file, "check the file given to --emulate");
  }
}

}  // namespace dtrain::app
