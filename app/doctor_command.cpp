#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>
#include <link.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "comm/discover.hpp"
#include "command_line.hpp"
#include "commands.hpp"
#include "core/version.hpp"

namespace dtrain::app {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr double kLeastSharedMemory_bytes =
    64.0 * kMiB;  ///< Docker's default; a large model's gradients need more.

/// Lines of findings, and whether one of them stops a run.
class Findings {
 public:
  void good(std::string_view what, const std::string& value) { fmt::print("{:<14} {}\n", what, value); }
  void bad(std::string_view what, const std::string& problem, const std::string& remedy) {
    fmt::print("{:<14} PROBLEM: {}; {}\n", what, problem, remedy);
    sound_ = false;
  }
  ExitCode result() const { return sound_ ? ExitCode::success : ExitCode::failure; }

 private:
  bool sound_ = true;
};

struct Search {
  std::string_view name;
  std::vector<std::string> found;
};

/// Paths of the shared libraries in this process whose file names begin with `name`.
std::vector<std::string> loaded(std::string_view name) {
  Search search{.name = name, .found = {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        const std::filesystem::path path = info->dlpi_name;
        if (path.filename().string().starts_with(wanted.name)) wanted.found.push_back(path.string());
        return 0;
      },
      &search);
  return search.found;
}

void show_library(Findings& findings, std::string_view what, const std::string& version,
                  std::string_view file) {
  const auto paths = loaded(file);
  if (paths.size() > 1) {
    findings.bad(what, fmt::format("{} are both loaded", fmt::join(paths, " and ")), "unset LD_LIBRARY_PATH");
  } else {
    findings.good(what, fmt::format("{}  {}", version, paths.empty() ? "linked in" : paths.front()));
  }
}

std::string hdf5_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

void show_mpi(Findings& findings, const Environment& environment) {
  std::string version = comm::MpiEnvironment::library_version();
  version = version.substr(0, version.find(','));
  show_library(findings, "MPI", version, "libmpi.so");
  const bool ulfm = dlsym(RTLD_DEFAULT, "MPIX_Comm_revoke") != nullptr;
  findings.good("recovery", !ulfm ? "off: this MPI has no ULFM; Open MPI 5 has"
                            : environment.fault_tolerant
                                ? "on"
                                : "off: start with mpirun --with-ft ulfm to have it");
}

void show_gpu(Findings& findings) {
#ifdef DTRAIN_WITH_CUDA
  findings.good("CUDA module", "built");
#else
  findings.good("CUDA module", "not built: nvcc was not found when dtrain was configured");
#endif
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  findings.good("GPU driver", driver != nullptr ? "libcuda.so.1 is there" : "none (no libcuda.so.1)");
  if (driver != nullptr) dlclose(driver);
}

void show_machine(Findings& findings) {
  const auto cores = comm::affinity_mask();
  findings.good("cores",
                fmt::format("{} of {} in the affinity mask", cores.size(), sysconf(_SC_NPROCESSORS_ONLN)));
  const double memory_bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  findings.good("memory", fmt::format("{:.1f} GiB", memory_bytes / (1024.0 * kMiB)));
  struct statvfs facts = {};
  if (statvfs("/dev/shm", &facts) != 0) {
    findings.bad("shared memory", "there is no /dev/shm", "mount a tmpfs there");
    return;
  }
  const double free_bytes = static_cast<double>(facts.f_bavail) * static_cast<double>(facts.f_frsize);
  const std::string text = fmt::format("{:.0f} MiB free in /dev/shm", free_bytes / kMiB);
  if (free_bytes < kLeastSharedMemory_bytes) {
    findings.bad("shared memory", text, "enlarge it, in a container with --shm-size=1g");
  } else {
    findings.good("shared memory", text);
  }
}

/// The nearest folder that exists at or above `path`: where new folders would be made.
std::filesystem::path existing_part(std::filesystem::path path) {
  std::error_code ignored;
  path = std::filesystem::absolute(path, ignored);
  while (!std::filesystem::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path;
}

/// Asks by doing: permissions alone do not tell of read-only file systems, nor anything to root.
bool can_make_folders_in(const std::filesystem::path& folder) {
  std::string trial = (folder / ".dtrain-XXXXXX").string();
  return mkdtemp(trial.data()) != nullptr && rmdir(trial.c_str()) == 0;
}

void show_folder(Findings& findings, std::string_view what, const std::string& folder,
                 std::string_view option) {
  const auto part = existing_part(folder);
  if (std::filesystem::is_directory(part) && can_make_folders_in(part))
    return findings.good(what, fmt::format("{} is writable", folder));
  findings.bad(what, fmt::format("{} is not writable", part.string()),
               fmt::format("name another folder with {}", option));
}

ExitCode examine(const Environment& environment, const std::string& output) {
  Findings findings;
  findings.good("dtrain", fmt::format("{}  compiled by {}", version(), __VERSION__));
  show_library(findings, "LibTorch", DTRAIN_LIBTORCH_VERSION, "libtorch_cpu.so");
  show_mpi(findings, environment);
  show_library(findings, "HDF5", hdf5_version(), "libhdf5");
  show_gpu(findings);
  show_machine(findings);
  show_folder(findings, "output", output, "--output");
  return findings.result();
}

}  // namespace

Task doctor_command(const Words& words, const Environment& environment) {
  std::string output = "runs";
  Parser parser("doctor", "Shows what dtrain found on this machine; ends with 1 when a run could not work.");
  parser.add_option("--output", output, "where run folders are to be made [runs]")->option_text("FOLDER");
  if (const auto help = parse(parser, words)) return print_task(*help);
  return {.alone = [environment, output] { return examine(environment, output); }, .together = {}};
}

}  // namespace dtrain::app
