#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "comm/device/cuda_module.hpp"
#include "comm/groups.hpp"
#include "comm/mpi/communicator.hpp"
#include "comm/mpi/ulfm.hpp"
#include "comm/survey/clock_offsets.hpp"
#include "comm/survey/discover.hpp"
#include "comm/survey/link_speeds.hpp"
#include "comm/watch/deadline.hpp"
#include "commands.hpp"
#include "core/version.hpp"
#include "doctor/cores.hpp"
#include "doctor/folder.hpp"
#include "doctor/gpus.hpp"
#include "doctor/launch.hpp"
#include "doctor/libraries.hpp"
#include "doctor/memory.hpp"
#include "doctor/network.hpp"
#include "doctor_report.hpp"
#include "options/command_line.hpp"
#include "preflight.hpp"

namespace dtrain::app {
namespace {

constexpr double kStart_s = 60;       ///< For MPI to start.
constexpr double kLook_s = 60;        ///< For all ranks to have looked at one thing.
constexpr double kLinks_s = 600;      ///< At all links: some MB over each of up to 64 of a node.
constexpr double kFileSystem_s = 20;  ///< For a file system to answer.

/// What the job that is to follow would be started with.
struct DoctorOptions {
  std::string output = "runs";
  std::string device = "auto";
  int threads = 0;
};

/// One look at everything; each part is collective.
class Examination {
 public:
  Examination(const DoctorOptions& options, const Environment& environment, const comm::MpiEnvironment& mpi)
      : options_(options),
        environment_(environment),
        mpi_(mpi),
        world_(comm::Communicator::duplicate(mpi.world())),
        cluster_(comm::discover_cluster(world_, comm::affinity_mask())),
        leaders_(cluster_.leaders()),
        report_(world_, cluster_,
                fell_apart() && environment.launcher_rank.value_or(0) != 0 ? DoctorReport::Speaker::no
                                                                           : DoctorReport::Speaker::yes) {
    for (const int leader : leaders_)
      hosts_.push_back(cluster_.ranks[static_cast<std::size_t>(leader)].hostname);
  }

  ExitCode carry_out() {
    look("the launch", kLook_s, [this] { launch(); });
    look("the cores", kLook_s,
         [this] { report_.add(judge_cores_of(world_, cluster_, environment_, request())); });
    look("the GPUs", kLook_s, [this] { gpus(); });
    look("the libraries", kLook_s, [this] { libraries(); });
    look("the shared memory", kLook_s, [this] { report_.gather(shared_memory(), doctor::Asked::nodes); });
    if (cluster_.node_count() > 1) {
      look("the clocks", kLook_s, [this] {
        report_.add(doctor::judge_clocks(comm::measure_clock_offsets(world_, cluster_), hosts_));
      });
      look("the links", kLinks_s, [this] { links(); });
    }
    look("the output folder", 3 * kLook_s, [this] { output(); });
    const ExitCode result = report_.sum_up();
    look("the end", kLook_s, [this] { world_.barrier(); });  // no rank ends before the last line is out
    return result;
  }

 private:
  template <typename Part>
  void look(const char* at, double limit_s, Part part) const {
    const comm::Deadline deadline(
        limit_s, fmt::format("rank {} on {}: the look at {}", world_.rank(), host(), at), ExitCode::failure);
    part();
  }

  const std::string& host() const { return place().hostname; }
  const topology::RankPlace& place() const { return cluster_.ranks[static_cast<std::size_t>(world_.rank())]; }
  bool leads() const { return leaders_[static_cast<std::size_t>(place().node)] == world_.rank(); }
  bool fell_apart() const { return world_.size() == 1 && environment_.launcher_size > 1; }
  bool wants_gpus() const { return options_.device == "cuda"; }

  doctor::ThreadRequest request() const {
    if (options_.threads > 0) return {.threads = options_.threads, .source = "--threads "};
    return {};
  }

  void launch() {
    report_.add(judge_launch_of(world_, cluster_, environment_));
    const auto job = environment_.slurm_job_id.value_or("");
    report_.gather(doctor::judge_slurm_job(job, world_.broadcast(job, 0)));
    report_.add(doctor::judge_builds(world_.all_gather(build_id()), cluster_));
  }

  void gpus() {
    if (options_.device == "cpu") return;
    const auto found = doctor::look_at_gpus();
    report_.gather({doctor::judge_driver(found, wants_gpus())});
    const auto gpu_count = static_cast<int>(found.uuids.size());
    const int mine = gpu_count == 0 ? -1 : place().local_rank % gpu_count;
    const auto numbers = world_.all_gather(std::int64_t{mine});
    const auto uuids =
        world_.all_gather(mine < 0 ? std::string() : found.uuids[static_cast<std::size_t>(mine)]);
    topology::Cluster with_gpus = cluster_;
    for (auto& rank : with_gpus.ranks) {
      rank.gpu = static_cast<int>(numbers[static_cast<std::size_t>(rank.rank)]);
      rank.device_uuid = uuids[static_cast<std::size_t>(rank.rank)];
    }
    report_.add(doctor::judge_gpus(with_gpus, wants_gpus()));
  }

  void libraries() {
    std::vector<doctor::Finding> mine = judge_libraries();
    int provided = MPI_THREAD_SINGLE;
    MPI_Query_thread(&provided);
    mine.push_back(doctor::judge_threads(provided));
    if (world_.size() > 1)
      mine.push_back(doctor::judge_recovery(comm::ulfm::available(), mpi_.can_recover()));
    if (options_.device != "cpu") {
      const auto cuda = cuda_libraries();
      mine.insert(mine.end(), cuda.begin(), cuda.end());
    }
    report_.gather(mine);
  }

  std::vector<doctor::Finding> cuda_libraries() const {
#ifdef DTRAIN_WITH_CUDA
    const auto found = comm::CudaModule::libraries();
    if (!found.problem.empty()) {
      return {doctor::problem("CUDA module", found.problem,
                              "build it together with the program: jobs/build.sh; or use --device cpu")};
    }
    using doctor::judge_library;
    std::vector<doctor::Finding> findings = {
        judge_library({.what = "NCCL",
                       .built = found.nccl_built,
                       .loaded = found.nccl_loaded,
                       .copies = doctor::loaded_copies("libnccl.so")}),
        judge_library({.what = "CUDA",
                       .built = found.runtime_built,
                       .loaded = found.runtime_loaded,
                       .copies = doctor::loaded_copies("libcudart.so")})};
    if (!found.driver.empty()) {
      findings.push_back(judge_library({.what = "CUDA driver",
                                        .built = found.runtime_built,
                                        .loaded = found.driver,
                                        .copies = doctor::loaded_copies("libcuda.so"),
                                        .match = doctor::Match::driver}));
    }
    return findings;
#else
    const std::string problem = "not built: nvcc was not found when dtrain was configured";
    const std::string remedy = "build dtrain again where nvcc is in PATH: jobs/build.sh";
    if (wants_gpus()) return {doctor::problem("CUDA module", problem, remedy)};
    if (!doctor::look_at_gpus().uuids.empty()) return {doctor::note("CUDA module", problem, remedy)};
    return {doctor::good("CUDA module", problem)};
#endif
  }

  std::vector<doctor::Finding> shared_memory() const {
    const topology::Mesh mesh(cluster_, {.data = cluster_.world_size()});
    const auto need = static_cast<std::int64_t>(comm::shared_memory_for(cluster_, mesh, place().node));
    auto findings = doctor::judge_sharing(cluster_);
    findings.push_back(doctor::judge_shared_memory(doctor::look_at_shared_memory(need)));
    return findings;
  }

  void links() {
    constexpr std::size_t kMostByChance = 16;  // where more are slow, it is no other program's doing
    auto measured = comm::measure_link_speeds(world_, cluster_);
    auto slow = doctor::slow_links(measured);
    if (slow.size() > kMostByChance) slow.clear();
    for (const auto& again : comm::measure_again(world_, cluster_, slow)) {
      for (auto& link : measured) {
        if (link.from == again.from && link.to == again.to)
          link.bytes_per_s = std::max(link.bytes_per_s, again.bytes_per_s);
      }
    }
    report_.add(doctor::judge_links(measured, hosts_));
  }

  void output() {
    doctor::FolderFacts facts;
    if (leads()) facts = doctor::try_folder(options_.output, kFileSystem_s);
    const bool bad = report_.gather(doctor::judge_folder(facts, "--output"), doctor::Asked::nodes);
    const auto usable = facts.stuck_in.empty() && facts.failed.empty();
    const bool all_usable = world_.min(std::int64_t{usable ? 1 : 0}) == 1;
    const bool shared = cluster_.node_count() == 1 || (all_usable && is_shared());
    const double sync_s = world_.max(facts.sync_s);
    const auto free_bytes =
        -world_.max(leads() ? -facts.free_bytes : std::numeric_limits<std::int64_t>::min());
    if (!bad && shared)
      report_.add(doctor::sum_up_folder(options_.output, sync_s, free_bytes, cluster_.node_count()));
  }

  /// Whether all nodes see one and the same folder, and what one of them replaces there.
  bool is_shared() {
    std::optional<doctor::SharedTrial> trial;
    if (world_.rank() == 0) trial.emplace(options_.output);
    const auto path = world_.broadcast(trial ? trial->path().string() : std::string(), 0);
    if (path.empty()) return false;  // it was possible a moment ago
    doctor::SeenFacts seen{.seen = true};
    if (world_.rank() == 0)
      trial->replace_versions();
    else if (leads())
      seen = doctor::look_at_trial(path, place().node, kFileSystem_s);
    std::vector<doctor::Finding> mine = doctor::judge_seen(seen, options_.output, hosts_.front());
    world_.patient_barrier();
    const bool seen_by_all = world_.min(std::int64_t{seen.seen ? 1 : 0}) == 1;
    if (world_.rank() == 0 && seen_by_all) {
      for (const int node : doctor::unseen_nodes(path, cluster_.node_count(), kFileSystem_s)) {
        mine.push_back(doctor::judge_unseen(options_.output, hosts_[static_cast<std::size_t>(node)]));
      }
    }
    return !report_.gather(mine, doctor::Asked::nodes);
  }

  DoctorOptions options_;
  const Environment& environment_;
  const comm::MpiEnvironment& mpi_;
  comm::Communicator world_;
  topology::Cluster cluster_;
  std::vector<int> leaders_;
  std::vector<std::string> hosts_;  // by node
  DoctorReport report_;
};

}  // namespace

Task doctor_command(const Words& words, const Environment& environment) {
  DoctorOptions options;
  Parser parser(
      "doctor",
      "Looks for all that can be wrong before a job, on one process or on the ranks that mpirun or srun "
      "starts; ends with 1 when something is.");
  parser.add_option("--output", options.output, "parent folder of the job's run [runs]")
      ->option_text("FOLDER");
  parser.add_option("--threads", options.threads, "compute threads per rank [from the affinity mask]")
      ->option_text("N");
  parser.add_option("--device", options.device, "device of the job [auto]")->option_text("auto|cpu|cuda");
  if (const auto help = parse(parser, words)) return print_task(*help);
  if (options.threads < 0) {
    throw usage_error("is negative", fmt::format("--threads {}", options.threads),
                      "use 0 (from the affinity mask) or more");
  }
  if (options.device != "auto" && options.device != "cpu" && options.device != "cuda")
    throw usage_error("there is no such device", "--device " + options.device, "use auto, cpu or cuda");
  return {.alone = {},
          .together =
              [options, environment](comm::MpiEnvironment& mpi) {
                std::optional<comm::Deadline> deadline(std::in_place, kLook_s, "the first look at the ranks",
                                                       ExitCode::failure);
                Examination examination(options, environment, mpi);
                deadline.reset();
                return examination.carry_out();
              },
          .start_limit_s = kStart_s};
}

}  // namespace dtrain::app
