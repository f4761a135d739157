#include "state/resume_point.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <system_error>

#include "checkpoint/reader.hpp"
#include "checkpoint/writer.hpp"
#include "comm/watch/shared_failure.hpp"
#include "core/error.hpp"
#include "core/shared_failure.hpp"

namespace dtrain::state {
namespace fs = std::filesystem;
namespace {

/// What is wrong with a checkpoint: `FILE: PROBLEM`, the same on all ranks; empty when nothing is. Each rank
/// checks every n-th file. Collective.
std::string damage_of(const fs::path& folder, const comm::Communicator& world,
                      std::optional<checkpoint::Manifest>& manifest) {
  const auto own = failure_of([&] {
    manifest = checkpoint::read_manifest(folder);
    for (std::size_t i = 0; i < manifest->files.size(); ++i) {
      if (static_cast<int>(i % static_cast<std::size_t>(world.size())) != world.rank()) continue;
      const auto& file = manifest->files[i];
      const auto problem = checkpoint::damage(folder, file);
      require(problem.empty(), problem, {.subject = (folder / file.file).string()});
    }
  });
  const auto first = comm::first_failure(own, world);
  return first ? fmt::format("{}: {}", first->subject(), first->problem()) : std::string();
}

/// Folder names, newest first, as rank 0 sees them.
std::vector<std::string> candidates(const fs::path& checkpoints, const comm::Communicator& world) {
  std::vector<std::string> names;
  if (world.rank() == 0) {
    for (const auto& folder : checkpoint::list(checkpoints)) names.push_back(folder.filename().string());
  }
  const std::string joined = world.broadcast(fmt::format("{}", fmt::join(names, "\n")), 0);
  names.clear();
  for (std::size_t at = 0; at < joined.size();) {
    const auto end = std::min(joined.find('\n', at), joined.size());
    names.push_back(joined.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

/// The step that the link `best` names, as rank 0 sees it; 0: none.
std::int64_t linked_best(const fs::path& checkpoints, const comm::Communicator& world) {
  std::int64_t step = 0;
  if (world.rank() == 0) {
    std::error_code none;
    step = checkpoint::step_of(fs::read_symlink(checkpoints / "best", none));
  }
  return world.max(step);
}

/// See newest_valid(). Collective.
void settle_best(const fs::path& checkpoints, const comm::Communicator& world, ResumePoint& point) {
  auto& best = point.info.best;
  if (best.step == 0) return;
  const auto linked = linked_best(checkpoints, world);
  std::optional<checkpoint::Manifest> manifest;
  const auto damage = [&](std::int64_t step) {
    return step == point.info.step ? std::string()
                                   : damage_of(checkpoints / checkpoint::step_folder(step), world, manifest);
  };
  if (const auto problem = damage(best.step); !problem.empty()) {
    const bool other = linked > 0 && linked != best.step && linked < point.info.step;
    if (other && damage(linked).empty() && manifest->info.best.step == linked) {
      best = manifest->info.best;
    } else {
      best = {.step = point.info.step, .loss = std::numeric_limits<double>::quiet_NaN()};
    }
    point.forgotten_best =
        fmt::format("{}; until a better one comes it is {}", problem, checkpoint::step_folder(best.step));
  }
  if (linked != best.step && world.rank() == 0) checkpoint::mark(checkpoints, checkpoint::kBest, best.step);
}

/// Whether a run on so many samples is where the checkpoint stands after as many steps.
bool comes_to(const checkpoint::CheckpointInfo& info, std::int64_t samples, std::int64_t global_batch) {
  if (info.position_samples > samples) return false;
  if (global_batch < 1 || samples < 1 || info.step < 1) return true;
  const auto steps_per_epoch = (samples + global_batch - 1) / global_batch;
  const auto of_epoch = info.step - (info.epoch - 1) * steps_per_epoch;
  return of_epoch >= 1 && of_epoch <= steps_per_epoch &&
         info.position_samples == std::min(of_epoch * global_batch, samples);
}

/// Out of the way, where the user can look at it.
void put_aside(const fs::path& folder) {
  fs::path damaged = folder;
  damaged += ".damaged";
  std::error_code ignored;
  fs::remove_all(damaged, ignored);
  fs::rename(folder, damaged, ignored);
}

/// Collective. Throws Error (exit code 4).
ResumePoint newest_of_run(const fs::path& checkpoints, const comm::Communicator& world) {
  ResumePoint point{.folder = {}, .info = {}, .own = false, .passed_over = {}};
  for (const auto& name : candidates(checkpoints, world)) {
    point.folder = checkpoints / name;
    std::optional<checkpoint::Manifest> manifest;
    const std::string problem = damage_of(point.folder, world, manifest);
    if (problem.empty()) {
      point.info = manifest->info;
      return point;
    }
    point.passed_over.push_back(problem);
  }
  throw checkpoint_error(point.passed_over.empty()
                             ? std::string("holds no checkpoint")
                             : fmt::format("no checkpoint is whole; {}", fmt::join(point.passed_over, "; ")),
                         checkpoints.string(), "name another run, or a checkpoint's folder");
}

}  // namespace

std::optional<ResumePoint> newest_valid(const fs::path& checkpoints, const comm::Communicator& world) {
  const auto names = candidates(checkpoints, world);
  ResumePoint point;
  for (const auto& name : names) {
    point.folder = checkpoints / name;
    std::optional<checkpoint::Manifest> manifest;
    const std::string problem = damage_of(point.folder, world, manifest);
    if (problem.empty()) {
      point.info = manifest->info;
      for (std::size_t i = 0; world.rank() == 0 && i < point.passed_over.size(); ++i) {
        put_aside(checkpoints / names[i]);
      }
      world.barrier();
      settle_best(checkpoints, world, point);
      return point;
    }
    point.passed_over.push_back(problem);
  }
  if (names.empty()) return std::nullopt;
  throw checkpoint_error(fmt::format("no checkpoint is whole; {}", fmt::join(point.passed_over, "; ")),
                         checkpoints.string(), "start anew with --overwrite or another --name");
}

ResumePoint resume_point(const fs::path& folder, const comm::Communicator& world) {
  const auto below = folder / "checkpoints";
  std::error_code ignored;
  const bool is_run = world.rank() == 0 && fs::is_directory(below, ignored);
  if (world.max(static_cast<std::int64_t>(is_run)) == 1) return newest_of_run(below, world);
  std::optional<checkpoint::Manifest> manifest;
  const std::string problem = damage_of(folder, world, manifest);
  if (!problem.empty()) throw checkpoint_error("cannot be resumed", problem, "name another checkpoint");
  return {.folder = folder, .info = manifest->info, .own = false, .passed_over = {}};
}

void check_same_dataset(const ResumePoint& point, const checkpoint::DatasetIdentity& now,
                        const std::string& dataset, std::int64_t global_batch) {
  const auto& then = point.info.identity;
  const auto samples_of = [&now](const std::string& split) {
    const auto found = now.samples.find(split);
    return found == now.samples.end() ? std::int64_t{0} : found->second;
  };
  const bool knows = !then.sha256.empty();
  if (knows ? then.sha256 == now.sha256 : comes_to(point.info, samples_of("train"), global_batch)) return;
  std::string what = knows ? "was staged anew since the run was begun, with other samples or into other files"
                           : "has other samples than it had when the run was begun";
  if (!knows) {
    what += fmt::format(": with {} to train on, {} steps do not come to sample {} of epoch {}",
                        samples_of("train"), point.info.step, point.info.position_samples, point.info.epoch);
  }
  for (const auto& [split, samples] : then.samples) {
    if (samples_of(split) != samples)
      what = fmt::format("has {} samples in split {}, and had {} when the run was begun", samples_of(split),
                         split, samples);
  }
  throw data_error(
      what, fmt::format("the dataset {}", dataset),
      fmt::format(
          "stage it as it was, with the same --shards, or start another run with another --name, from these "
          "weights with --init-from {}",
          point.folder.string()));
}

void check_together(const fs::path& folder, const comm::Communicator& world) {
  std::optional<checkpoint::Manifest> manifest;
  const std::string problem = damage_of(folder, world, manifest);
  if (!problem.empty()) throw checkpoint_error("cannot be loaded", problem, "take another checkpoint");
}

}  // namespace dtrain::state
