#include "plan_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "core/counted.hpp"
#include "core/printable.hpp"

namespace dtrain::app {
namespace {

using plan::ClusterPlan;
using plan::MeshPlan;

constexpr std::size_t kMeshesShown = 10;

std::string size_text(double bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return bytes == 0 ? std::string("0") : fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

std::string mesh_table(const ClusterPlan& plan, bool all) {
  std::string text = fmt::format("{:>4}  {:<28}  {:>10}  {:>16}  {:>18}  {:>6}\n", "", "mesh", "memory",
                                 "sent in a node", "sent between nodes", "idle");
  const std::size_t shown = all ? plan.fitting.size() : std::min(plan.fitting.size(), kMeshesShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const MeshPlan& mesh = plan.fitting[i];
    text += fmt::format("{:>4}  {:<28}  {:>10}  {:>16}  {:>18}  {:>4.0f} %{}\n", i + 1, mesh.mesh.to_string(),
                        size_text(mesh.memory_bytes), size_text(mesh.bytes_in_node),
                        size_text(mesh.bytes_between_nodes), 100 * mesh.idle_share,
                        mesh.repeats_layers ? "  with --recompute auto" : "");
  }
  if (shown < plan.fitting.size())
    text += fmt::format("      and {} more: --all lists them\n", plan.fitting.size() - shown);
  return text +
         "      of the rank that needs most; bytes that a rank sends in a step; idle for the pipeline's "
         "order and "
         "unequal stages\n";
}

/// What sets the first one apart.
std::string why_first(const ClusterPlan& plan) {
  const MeshPlan& first = plan.fitting.front();
  const auto least = [&](auto figure) {
    return std::ranges::all_of(plan.fitting,
                               [&](const MeshPlan& other) { return figure(first) <= figure(other); });
  };
  const bool plenty = std::ranges::all_of(plan.fitting, [&](const MeshPlan& mesh) {
    return plan::leaves_room(mesh.memory_bytes, plan.limit_bytes);
  });
  std::vector<std::string> merits;
  if (!plenty && least([](const MeshPlan& mesh) { return mesh.memory_bytes; }))
    merits.emplace_back("needs least memory");
  if (least([](const MeshPlan& mesh) { return mesh.bytes_between_nodes; }))
    merits.emplace_back("sends fewest bytes between nodes");
  if (least([](const MeshPlan& mesh) { return mesh.idle_share; })) merits.emplace_back("is least idle");
  std::string text;
  for (const auto& merit : merits) text += (text.empty() ? "" : ", ") + merit;
  if (text.empty())
    text = fmt::format(
        "has the best places in {}bytes (those between nodes count ten times) and idle time together",
        plenty ? "" : "memory, ");
  else
    text += " of those that fit";
  if (plenty) text += "; memory does not count, since each of them leaves a fifth of it free";
  return fmt::format("{} {}", first.mesh.to_string(), text);
}

std::string why_not_one_copy(const ClusterPlan& plan) {
  std::string text =
      fmt::format("{} parameters: a copy takes {} with gradients and optimizer, before activations",
                  grouped(plan.parameters), size_text(plan.copy_bytes));
  if (plan.limit_bytes == 0) return text;
  text += fmt::format("; a rank has {}", size_text(plan.limit_bytes));
  if (plan.copy_bytes <= plan.limit_bytes) return text;
  const bool fits_whole =
      std::ranges::any_of(plan.fitting, [](const MeshPlan& mesh) { return mesh.mesh.model_ranks() == 1; });
  return text + (fits_whole ? ", which suffices where the ranks of a node have parameters and optimizer once"
                            : ", so it must be cut");
}

/// Empty where there is one rank, which has no pipeline.
std::string why_pipelines_idle(const train::RunConfig& config, const ClusterPlan& plan) {
  const auto is_pipeline = [](const MeshPlan& mesh) { return mesh.mesh.pipe > 1; };
  if (std::ranges::any_of(plan.fitting, is_pipeline))
    return fmt::format(
        "a pipeline of P ranks waits (P - 1) of (M + P - 1) turns for M micro-batches per copy ({}): "
        "more --micro-batches make it shorter",
        config.batch.micro_batches > 0 ? fmt::format("{} in all", config.batch.micro_batches)
                                       : std::string("4 P by default"));
  const MeshPlan* smallest = nullptr;
  for (const MeshPlan& mesh : plan.too_large) {
    if (is_pipeline(mesh) && (smallest == nullptr || mesh.memory_bytes < smallest->memory_bytes))
      smallest = &mesh;
  }
  if (smallest != nullptr)
    return fmt::format("no pipeline fits here: the smallest, {}, takes {}", smallest->mesh.to_string(),
                       size_text(smallest->memory_bytes));
  if (plan.fitting.front().mesh.size() == 1) return {};
  return "no pipeline makes sense here: a step has too few samples for its micro-batches, or the model too "
         "few layers";
}

std::string what_is_left_out(const ClusterPlan& plan) {
  std::string text = plan.limit_bytes > 0
                         ? fmt::format("{} of {} meshes do not fit", plan.too_large.size(),
                                       plan.too_large.size() + plan.fitting.size())
                         : std::string("every mesh counts as fitting: --memory says what a rank has");
  if (!plan.refused.empty())
    text += fmt::format("; {} more make no sense, such as {}", plan.refused.size(),
                        printable(plan.refused.front(), 200));
  return text;
}

}  // namespace

std::string plan_text(const train::RunConfig& config, const ClusterPlan& plan, bool all) {
  std::string text = fmt::format("{} on {}, global batch {}\n", config.model.name, config.cluster,
                                 grouped(config.batch.global_batch));
  if (!plan.fitting.empty()) text += "\n" + mesh_table(plan, all);
  text += "\nwhy\n";
  text += "  - " + why_not_one_copy(plan) + "\n";
  if (plan.fitting.empty()) {
    const auto smallest = std::ranges::min_element(plan.too_large, {}, &MeshPlan::memory_bytes);
    if (smallest != plan.too_large.end())
      text += fmt::format("  - no mesh fits: the smallest, {}, takes {}; use more ranks or fewer samples\n",
                          smallest->mesh.to_string(), size_text(smallest->memory_bytes));
  } else {
    text += "  - " + why_first(plan) + "\n";
    text += "  - tensor slices stay within a node: each layer waits for their sums\n";
    if (const auto idle = why_pipelines_idle(config, plan); !idle.empty()) text += "  - " + idle + "\n";
  }
  return text + "  - " + what_is_left_out(plan) + "\n";
}

}  // namespace dtrain::app
