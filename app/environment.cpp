#include "environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <system_error>

#include "core/parse_number.hpp"

namespace dtrain::app {
namespace {

std::optional<std::string> text_of(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

/// The first of `names` that holds a whole number.
std::optional<int> number_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto text = text_of(name);
    if (!text) continue;
    if (const auto value = parse_number<int>(*text)) return value;
  }
  return std::nullopt;
}

/// mpirun gives each rank a terminal of its own, whatever mpirun itself writes to: ask the parent's output
/// too.
bool parent_writes_to_terminal() {
  std::error_code failed;
  const auto target = std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", getppid()), failed).string();
  return !failed && (target.starts_with("/dev/pts/") || target.starts_with("/dev/tty"));
}

}  // namespace

Environment read_environment() {
  Environment environment;
  environment.slurm_job_id = text_of("SLURM_JOB_ID");
  const auto mpirun_size = number_of({"OMPI_COMM_WORLD_SIZE"});  // PMIx under srun does not set it
  if (!mpirun_size) environment.srun_tasks = number_of({"SLURM_STEP_NUM_TASKS"});
  environment.launcher_rank = number_of({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"});
  if (!environment.launcher_rank && environment.srun_tasks) {
    environment.launcher_rank = number_of({"SLURM_PROCID"});  // srun without PMI
  }
  const auto pmi_size = number_of({"PMI_SIZE"});
  environment.launcher_size = mpirun_size.value_or(environment.srun_tasks.value_or(pmi_size.value_or(1)));
  environment.launcher = mpirun_size ? "mpirun" : environment.srun_tasks ? "srun" : pmi_size ? "mpiexec" : "";
  environment.slurm_nodes = number_of({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"});
  // The ranks that mpirun's daemons start on further nodes have the daemons' job step in their environment.
  const bool daemons = mpirun_size && number_of({"SLURM_STEP_NUM_TASKS"});
  if (!daemons) environment.slurm_tasks = number_of({"SLURM_NTASKS"});
  environment.openmp_waits_are_set = text_of("GOMP_SPINCOUNT") || text_of("OMP_WAIT_POLICY");
  if (mpirun_size) {
    environment.mpirun = {.ranks = *mpirun_size,
                          .local_rank = number_of({"OMPI_COMM_WORLD_LOCAL_RANK"}).value_or(0),
                          .local_size = number_of({"OMPI_COMM_WORLD_LOCAL_SIZE"}).value_or(1)};
  }
  environment.temporary_folder = text_of("TMPDIR").value_or("/tmp");
  environment.python = text_of("DTRAIN_PYTHON").value_or("");
  environment.fault_tolerant = text_of("OMPI_MCA_mpi_ft_enable").value_or("") == "1";
  if (const auto address = text_of("SLURM_TOPOLOGY_ADDR")) {  // switches and then the node, joined by dots
    environment.switches =
        address->substr(0, address->find_last_of('.') == std::string::npos ? 0 : address->find_last_of('.'));
  }
  if (const auto folder = text_of("XDG_CACHE_HOME")) environment.cache_folder = *folder + "/dtrain";
  if (const auto home = text_of("HOME"); home && environment.cache_folder.empty()) {
    environment.cache_folder = *home + "/.cache/dtrain";
  }
  environment.terminal =
      isatty(STDOUT_FILENO) == 1 && (!environment.launcher_rank || parent_writes_to_terminal());
  return environment;
}

}  // namespace dtrain::app
