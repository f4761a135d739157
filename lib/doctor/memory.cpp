#include "doctor/memory.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include "core/counted.hpp"

namespace dtrain::doctor {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// Gradients, parameters and optimizer state lie there once per node: 113 MB each for vgg11's 28 million
// parameters. Without room every rank keeps its own and sends them, which is slower but works.
constexpr std::int64_t kRoomForModel_bytes = std::int64_t{512} << 20;

}  // namespace

std::string bytes_in_words(double bytes) {
  if (bytes >= 1000 * kMiB) return fmt::format("{:.1f} GiB", bytes / (1024 * kMiB));
  return fmt::format("{:.0f} MiB", bytes / kMiB);
}

SharedMemoryFacts look_at_shared_memory(std::int64_t needed_bytes) {
  struct statvfs facts = {};
  if (::statvfs("/dev/shm", &facts) != 0) return {.needed_bytes = needed_bytes};
  const auto unit = static_cast<std::int64_t>(facts.f_frsize);
  return {.total_bytes = static_cast<std::int64_t>(facts.f_blocks) * unit,
          .free_bytes = static_cast<std::int64_t>(facts.f_bavail) * unit,
          .needed_bytes = needed_bytes};
}

Finding judge_shared_memory(const SharedMemoryFacts& facts) {
  constexpr const char* kWhat = "shared memory";
  constexpr const char* kEnlarge =
      "enlarge it: in a container --shm-size=2g, elsewhere mount -o remount,size=2g /dev/shm; or remove what "
      "dead programs left there";
  if (facts.total_bytes < 0)
    return problem(kWhat, "there is no /dev/shm", "mount a tmpfs there, in a container with --shm-size=2g");
  const std::string text =
      fmt::format("{} of {} free in /dev/shm", bytes_in_words(static_cast<double>(facts.free_bytes)),
                  bytes_in_words(static_cast<double>(facts.total_bytes)));
  if (facts.free_bytes < facts.needed_bytes) {
    return problem(kWhat,
                   fmt::format("{}, the ranks of a node need {}", text,
                               bytes_in_words(static_cast<double>(facts.needed_bytes))),
                   kEnlarge);
  }
  if (facts.needed_bytes > 0 && facts.free_bytes < facts.needed_bytes + kRoomForModel_bytes) {
    return note(
        kWhat,
        fmt::format("{}: no room for a large model, whose ranks then send what they could share", text),
        kEnlarge);
  }
  return good(kWhat, text);
}

std::vector<Finding> judge_sharing(const topology::Cluster& cluster) {
  std::vector<Finding> findings;
  for (const auto& ranks : cluster.parted_machines()) {
    findings.push_back(problem("shared memory",
                               fmt::format("{} run on one machine but not all of them see the same /dev/shm: "
                                           "those that do not exchange messages, which is slower",
                                           numbered("rank", ranks)),
                               "start all ranks of a machine in one container, or give their containers one "
                               "/dev/shm with --ipc=host"));
  }
  return findings;
}

}  // namespace dtrain::doctor
