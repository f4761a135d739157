#include "comm/survey/binding.hpp"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "topology/placement.hpp"

namespace dtrain::comm {
namespace {

constexpr int kBoundToCores = 2;  // jobs of up to so many ranks

std::vector<int> mask_of(pid_t process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(process, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<std::string> words_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

/// Two hardware threads of one core are one.
bool within_one_core(const std::vector<int>& cpus) {
  hwloc_topology_t machine = nullptr;
  if (hwloc_topology_init(&machine) != 0) return cpus.size() == 1;
  bool within = cpus.size() == 1;
  if (hwloc_topology_load(machine) == 0) {
    const hwloc_bitmap_t set = hwloc_bitmap_alloc();
    for (const int cpu : cpus) hwloc_bitmap_set(set, static_cast<unsigned>(cpu));
    within = hwloc_get_nbobjs_inside_cpuset_by_type(machine, set, HWLOC_OBJ_CORE) <= 1 &&
             hwloc_get_next_obj_covering_cpuset_by_type(machine, set, HWLOC_OBJ_CORE, nullptr) != nullptr;
    hwloc_bitmap_free(set);
  }
  hwloc_topology_destroy(machine);
  return within;
}

void bind_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace

std::vector<int> affinity_mask() { return mask_of(0); }

bool names_a_binding(const std::vector<std::string>& launcher_words) {
  const auto names = [](std::string_view word) {
    return word == "--bind-to" || word == "-bind-to" || word.starts_with("--bind-to=") ||
           word == "--cpu-set" || word == "--cpu-list" || word == "--rankfile" ||
           word.find(":PE=") != std::string_view::npos || word.find(":pe=") != std::string_view::npos;
  };
  if (std::ranges::any_of(launcher_words, names)) return true;
  const std::array variables = {"PRTE_MCA_hwloc_default_binding_policy",
                                "OMPI_MCA_hwloc_base_binding_policy"};
  return std::ranges::any_of(variables, [](const char* name) { return std::getenv(name) != nullptr; });
}

std::vector<int> widen_default_binding(const LocalLaunch& launch) {
  const std::vector<int> mine = affinity_mask();
  if (launch.ranks > kBoundToCores || mine.empty() || !within_one_core(mine)) return mine;
  const pid_t launcher = ::getppid();
  if (names_a_binding(words_of(launcher))) return mine;
  const auto share = topology::share_of_cores(mask_of(launcher), launch.local_rank, launch.local_size);
  if (share.size() <= mine.size()) return mine;
  bind_to(share);
  return affinity_mask();
}

}  // namespace dtrain::comm
