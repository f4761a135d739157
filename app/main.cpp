#include <dlfcn.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>

#include "commands.hpp"
#include "data/placement/own_folder.hpp"
#include "failure.hpp"
#include "own_process.hpp"
#include "thread_waits.hpp"

namespace {

using namespace dtrain;

/// glibc would give the large blocks of a step back to the kernel and take their page faults again each time:
/// in runs of cnn with a batch of 256 that were alike, 37,000 or 297,000 faults came without this, always
/// 34,000 with.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

/// A rank whose launcher is gone would compute, or wait, in vain. (A signal at the parent's death would
/// come at the death of the thread that started this process.)
void end_with_launcher(const app::Environment& environment) {
  const pid_t launcher = getppid();
  if (!environment.launcher_rank || launcher <= 1) return;
  std::thread([launcher, rank = *environment.launcher_rank] {
    while (getppid() == launcher) std::this_thread::sleep_for(std::chrono::seconds(1));
    std::cerr << "dtrain: rank " << rank << ": its launcher is gone" << std::endl;  // if anybody listens
    ::_exit(static_cast<int>(ExitCode::lost_rank));
  }).detach();
}

/// Open MPI, started without a launcher, makes a folder in TMPDIR whose name others can foretell; it follows
/// a link that they have laid there, and ends by a signal where it may not enter. So where others may write
/// to TMPDIR, a folder of this user's own in it becomes TMPDIR. Before MPI is initialised.
void keep_session_folder_from_others(const app::Environment& environment) {
  if (environment.launcher_rank) return;  // which has given the ranks a folder
  struct stat facts = {};
  if (::stat(environment.temporary_folder.c_str(), &facts) != 0 || (facts.st_mode & S_IWOTH) == 0) return;
  try {
    const auto own = data::OwnFolder::find_or_make(environment.temporary_folder);
    ::setenv("TMPDIR", own.path().c_str(), 1);
  } catch (const std::filesystem::filesystem_error&) {  // full: Open MPI says what it lacks
  }
}

int fail(const std::exception& error) {
  std::cerr << "dtrain: " << app::as_error(error).what() << std::endl;
  return static_cast<int>(app::exit_code(error));
}

/// Ends what one process does for all of them.
int run_alone(const app::Task& task, const app::Environment& environment) {
  if (environment.launcher_rank.value_or(0) != 0) return 0;
  const auto work = [&task] {
    try {
      return static_cast<int>(task.alone());
    } catch (const std::exception& error) {
      return fail(error);
    }
  };
  try {
    return task.elsewhere ? app::in_own_process(*task.elsewhere, work) : work();
  } catch (const std::exception& error) {
    return fail(error);
  }
}

/// Whether this process is one of several that know nothing of one another: each would say the same.
bool is_silent(const app::Environment& environment, int ranks) {
  return ranks == 1 && environment.launcher_rank.value_or(0) != 0;
}

int run_together(const app::Task& task, const app::Environment& environment,
                 std::optional<comm::DefaultBinding>& binding, comm::MpiEnvironment& mpi) {
  const auto errors = comm::Communicator::duplicate(MPI_COMM_WORLD);
  try {
    if (binding && binding->settle(errors) && errors.rank() == 0) {
      std::cerr
          << "dtrain: warning: each rank has one core: Open MPI binds jobs of one or two ranks so, and no "
             "rank is beside mpirun to see whether that was asked for; say --bind-to core, and "
             "--map-by ppr:1:node:PE=CORES for more cores"
          << std::endl;
    }
    return static_cast<int>(task.together(mpi));
  } catch (const std::exception& error) {
    if (is_silent(environment, mpi.first_size())) return static_cast<int>(app::exit_code(error));
    return app::settle_failure(error, errors, mpi);
  }
}

int run(int argc, char** argv) {
  keep_freed_memory();
  const app::Environment environment = app::read_environment();
  std::optional<comm::DefaultBinding> binding;
  if (environment.mpirun) binding.emplace(*environment.mpirun);
  end_with_launcher(environment);
  app::Task task;
  try {
    task = app::understand(argc, argv, environment);
  } catch (const std::exception& thrown) {
    const Error error = app::as_error(thrown, ExitCode::usage);
    if (is_silent(environment, environment.launcher_size)) return static_cast<int>(error.code());
    if (environment.launcher_size == 1) return fail(error);
    task.together = [error](comm::MpiEnvironment&) -> ExitCode {
      throw error;
    };  // all ranks see it; one says it
  }
  if (task.alone) return run_alone(task, environment);
  const auto cores = binding ? binding->most_cores() : comm::affinity_mask();
  if (task.threads && app::may_have_several_threads(*task.threads, cores, environment))
    app::limit_spinning(argv, environment);
  keep_session_folder_from_others(environment);
  try {
    if (task.starting) task.starting->at("MPI connects the ranks");
    const auto recovery = environment.fault_tolerant ? comm::Recovery::on : comm::Recovery::off;
    comm::MpiEnvironment mpi(argc, argv, recovery, task.start_limit_s);
    const int code = run_together(task, environment, binding, mpi);
    if (mpi.can_recover()) mpi.exit_without_finalising(code);
    return code;
  } catch (const std::exception& error) {
    return fail(error);
  }
}

/// Ends the process without the destructors of what lives as long as it. LibTorch's would take thousands of
/// operators out of its tables one by one: a quarter of what `dtrain --version` computes. Only what
/// was registered with std::at_quick_exit runs. CUDA's libraries and their profilers write at the usual end,
/// and so do the sanitizers.
void leave(int code) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY) != nullptr) return;
  std::cout.flush();
  std::fflush(nullptr);
  std::quick_exit(code);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const int code = app::after_output(run(argc, argv));
  leave(code);
  return code;
}
