#include "comm/survey/binding.hpp"

#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "comm/mpi/communicator.hpp"
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

/// All threads that there are: MPI may have started some.
void bind_to(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof(set), &set);
  std::error_code failed;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", failed))
    ::sched_setaffinity(std::atoi(thread.path().filename().c_str()), sizeof(set), &set);
}

/// Whether these are the words of one that mpirun has started on a further node to start ranks there.
bool is_daemon(const std::vector<std::string>& words) {
  if (words.empty()) return false;
  const auto name = std::filesystem::path(words.front()).filename();
  return name == "prted" || name == "orted";
}

}  // namespace

std::vector<int> affinity_mask() { return mask_of(0); }

std::vector<std::vector<int>> cores_of(const std::vector<int>& cpus) {
  std::vector<std::vector<int>> cores;
  auto left = cpus;
  hwloc_topology_t machine = nullptr;
  if (hwloc_topology_init(&machine) == 0) {
    const int count =
        hwloc_topology_load(machine) == 0 ? hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_CORE) : 0;
    for (int index = 0; index < count; ++index) {  // neighbours in the machine, whatever their numbers
      const auto* core = hwloc_get_obj_by_type(machine, HWLOC_OBJ_CORE, static_cast<unsigned>(index));
      std::vector<int> threads;
      std::erase_if(left, [&](int cpu) {
        const bool here = hwloc_bitmap_isset(core->cpuset, static_cast<unsigned>(cpu)) != 0;
        if (here) threads.push_back(cpu);
        return here;
      });
      if (!threads.empty()) cores.push_back(std::move(threads));
    }
    hwloc_topology_destroy(machine);
  }
  for (const int cpu : left) cores.push_back({cpu});
  return cores;
}

bool names_a_binding(const std::vector<std::string>& launcher_words) {
  const auto names = [](std::string_view word) {
    return word == "--bind-to" || word == "-bind-to" || word.starts_with("--bind-to=") ||
           word == "--cpu-set" || word == "--cpu-list" || word == "--rankfile" ||
           word.find(":PE=") != std::string_view::npos || word.find(":pe=") != std::string_view::npos ||
           word.ends_with("_binding_policy");  // how daemons get it from mpirun's environment
  };
  if (std::ranges::any_of(launcher_words, names)) return true;
  const std::array variables = {"PRTE_MCA_hwloc_default_binding_policy",
                                "OMPI_MCA_hwloc_base_binding_policy"};
  return std::ranges::any_of(variables, [](const char* name) { return std::getenv(name) != nullptr; });
}

DefaultBinding::DefaultBinding(const LocalLaunch& launch) {
  const std::vector<int> mine = affinity_mask();
  few_ranks_ = launch.ranks <= kBoundToCores;
  if (!few_ranks_) return;
  const pid_t launcher = ::getppid();
  const auto words = words_of(launcher);
  if (names_a_binding(words)) {
    mpirun_ = Said::how_to_bind;
  } else if (!is_daemon(words)) {
    mpirun_ = Said::nothing;
  }
  if (mine.empty() || mpirun_ == Said::how_to_bind || !within_one_core(mine)) return;
  auto share = topology::share_of_cores(cores_of(mask_of(launcher)), launch.local_rank, launch.local_size);
  if (share.size() > mine.size()) share_ = std::move(share);
  if (mpirun_ == Said::nothing) widen();
}

std::vector<int> DefaultBinding::most_cores() const { return share_.empty() ? affinity_mask() : share_; }

bool DefaultBinding::settle(const Communicator& world) {
  if (!few_ranks_) return false;
  const auto said = static_cast<Said>(world.max(static_cast<std::int64_t>(mpirun_)));
  if (said == Said::nothing && mpirun_ == Said::not_seen) widen();
  return said == Said::not_seen && !share_.empty();
}

void DefaultBinding::widen() const {
  if (!share_.empty()) bind_to(share_);
}

}  // namespace dtrain::comm
