// Times all_reduce: every algorithm of dtrain beside MPI_Allreduce, in rounds that take turns, so that a busy
// moment of the machine hits all alike. Prints one CSV line per size, contender and round.
//   all_reduce_bench [--rounds 7] [--sizes 4096,262144,...] [--seconds 0.1] [--nodes 1]
//     [--only auto,...] [--rank-order placed]
#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "comm/groups.hpp"
#include "comm/mpi/mpi_environment.hpp"
#include "comm/survey/discover.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace {

using namespace dtrain;

struct Settings {
  int rounds = 7;
  double seconds = 0.1;  ///< Of one contender in one round.
  std::string only;      ///< Contenders by name, with commas around each; empty: all.
  topology::RankOrder order = topology::RankOrder::placed;
  int nodes = 1;  ///< Invented ones: ranks of different ones exchange messages; 0: those there are.
  std::vector<std::size_t> sizes = {4096, 262144, std::size_t{4} << 20, std::size_t{36} << 20};
};

Settings read_settings(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--rounds") settings.rounds = std::stoi(value);
    if (name == "--seconds") settings.seconds = std::stod(value);
    if (name == "--only") settings.only = "," + value + ",";
    if (name == "--rank-order") settings.order = topology::parse_rank_order(value);
    if (name == "--nodes") settings.nodes = std::stoi(value);
    if (name != "--sizes") continue;
    settings.sizes.clear();
    std::istringstream list(value);
    for (std::string item; std::getline(list, item, ',');) settings.sizes.push_back(std::stoull(item));
  }
  return settings;
}

enum class Mode { repeated, refilled };

struct Contender {
  std::string name;
  std::function<void()> all_reduce;
  std::function<float*()> values;
};

class Bench {
 public:
  Bench(const comm::Communicator& world, comm::Groups& groups, const Settings& settings)
      : world_(world), groups_(groups), settings_(settings) {}

  void run_size(std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    shared_ = groups_.world().allocate(bytes);
    ordinary_.assign(count, 0.0F);
    std::vector<Contender> contenders = make_contenders(count);
    operations_.clear();
    for (const Contender& contender : contenders) check(contender, count);
    for (const Mode mode : {Mode::repeated, Mode::refilled}) run_rounds(contenders, mode, count);
    for (const Contender& contender : contenders) {
      if (world_.rank() == 0)
        fmt::print("# {} operations of {} bytes: {}\n", contender.name, bytes, operations_[contender.name]);
    }
    groups_.world().barrier().wait();  // nobody frees what a neighbour still reads
  }

 private:
  void run_rounds(const std::vector<Contender>& contenders, Mode mode, std::size_t count) {
    const std::size_t bytes = count * sizeof(float);
    const double n = world_.size();
    for (int round = 0; round < settings_.rounds; ++round) {
      for (std::size_t k = 0; k < contenders.size(); ++k) {
        const std::int64_t iterations = agreed_iterations(contenders[k], mode, count);
        const double seconds = time_once(contenders[k], mode, count, iterations);
        const double bus_gb_s = 2 * (n - 1) / n * static_cast<double>(bytes) / seconds * 1e-9;
        if (world_.rank() != 0) continue;
        fmt::print("{},{},{},{},{},{},{},{:.4f},{:.3f}\n", bytes, contenders[k].name,
                   mode == Mode::repeated ? "repeated" : "refilled", world_.size(), settings_.nodes, round,
                   iterations, seconds * 1e6, bus_gb_s);
      }
    }
  }

  std::vector<Contender> make_contenders(std::size_t count) {
    const auto shared = [this] { return static_cast<float*>(shared_->data()); };
    const auto ordinary = [this] { return ordinary_.data(); };
    std::vector<Contender> contenders;
    contenders.push_back({"mpi_native",
                          [this, count] {
                            MPI_Allreduce(MPI_IN_PLACE, ordinary_.data(), static_cast<int>(count), MPI_FLOAT,
                                          MPI_SUM, world_.handle());
                          },
                          ordinary});
    const auto add = [&](std::string name, const std::function<float*()>& values, comm::Algorithm algorithm) {
      contenders.push_back({std::move(name),
                            [this, values, count, algorithm] {
                              groups_.world()
                                  .all_reduce({values(), count, comm::DataType::float32}, comm::ReduceOp::sum,
                                              algorithm)
                                  .wait();
                            },
                            values});
    };
    add("ring", ordinary, comm::Algorithm::ring);
    add("tree", ordinary, comm::Algorithm::tree);
    add("hierarchical_plain", ordinary, comm::Algorithm::hierarchical);
    add("hierarchical", shared, comm::Algorithm::hierarchical);
    add("auto", shared, comm::Algorithm::automatic);
    std::erase_if(contenders, [this](const Contender& c) {
      return !settings_.only.empty() && settings_.only.find("," + c.name + ",") == std::string::npos;
    });
    return contenders;
  }

  /// Sums of small whole numbers are exact whatever the order.
  void check(const Contender& contender, std::size_t count) {
    float* const values = contender.values();
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<float>((i + static_cast<std::size_t>(world_.rank())) % 7);
    ++operations_[contender.name];
    contender.all_reduce();
    bool right = true;
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int rank = 0; rank < world_.size(); ++rank)
        sum += static_cast<float>((i + static_cast<std::size_t>(rank)) % 7);
      right = right && values[i] == sum;
    }
    if (world_.min(std::int64_t{right ? 1 : 0}) == 0) throw Error("wrong sums", {.subject = contender.name});
    std::fill(values, values + count, 0.0F);  // repeated sums of zeros stay finite
    groups_.world().barrier().wait();
  }

  /// Seconds per operation, the slowest rank's. Repeated: one after another on the same values, as
  /// benchmarks of MPI do; caches then hold what each rank reads. Refilled: each rank has just written all of
  /// its buffer, as backward does with gradients.
  double time_once(const Contender& contender, Mode mode, std::size_t count, std::int64_t iterations) {
    contender.all_reduce();
    operations_[contender.name] += iterations + 1;
    groups_.world().barrier().wait();
    double seconds = 0;
    if (mode == Mode::repeated) {
      const double start_s = steady_s();
      for (std::int64_t i = 0; i < iterations; ++i) contender.all_reduce();
      seconds = steady_s() - start_s;
    }
    for (std::int64_t i = 0; mode == Mode::refilled && i < iterations; ++i) {
      std::fill_n(contender.values(), count, static_cast<float>(i % 8));
      groups_.world().barrier().wait();
      const double start_s = steady_s();
      contender.all_reduce();
      seconds += steady_s() - start_s;
    }
    return world_.max(seconds) / static_cast<double>(iterations);
  }

  /// The same number on every rank, for about `seconds`; asked each round: a machine may get busy.
  std::int64_t agreed_iterations(const Contender& contender, Mode mode, std::size_t count) {
    const double estimate_s = time_once(contender, mode, count, 1);
    const auto wanted = static_cast<std::int64_t>(settings_.seconds / std::max(estimate_s, 1e-7));
    return world_.min(std::clamp<std::int64_t>(wanted, 1, 20'000));
  }

  const comm::Communicator& world_;
  comm::Groups& groups_;
  const Settings& settings_;
  std::unique_ptr<comm::SharedBuffer> shared_;
  std::vector<float> ordinary_;
  std::map<std::string, std::int64_t> operations_;  ///< Of each contender, with a size.
};

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

std::string load() {
  std::ifstream file("/proc/loadavg");
  std::string text;
  std::getline(file, text);
  return text.substr(0, text.find(' '));
}

}  // namespace

int main(int argc, char** argv) {
  comm::MpiEnvironment mpi(argc, argv);
  try {
    const Settings settings = read_settings(argc, argv);
    const auto world = comm::Communicator::duplicate(MPI_COMM_WORLD);
    topology::Cluster cluster = comm::discover_cluster(world, comm::affinity_mask());
    for (topology::RankPlace& place : cluster.ranks) {
      if (settings.nodes == 0) break;
      const int per_node = (world.size() + settings.nodes - 1) / settings.nodes;
      place.node = place.rank / per_node;
      place.local_rank = place.rank % per_node;
    }
    NullSpanSink sink;
    comm::Groups groups =
        comm::make_groups(world, cluster, topology::Mesh(cluster, {.data = world.size()}, settings.order),
                          {.order = settings.order}, sink);
    if (world.rank() == 0) {
      std::string library = comm::MpiEnvironment::library_version();
      library = library.substr(0, library.find(','));
      fmt::print("# machine: {}, {} cores in rank 0's mask, load {} at the start, {}, {}\n", processor(),
                 cluster.ranks[0].cpus.size(), load(), library, utc_now());
      fmt::print("bytes,contender,mode,ranks,nodes,round,iterations,microseconds,bus_gb_per_s\n");
    }
    Bench bench(world, groups, settings);
    for (const std::size_t bytes : settings.sizes) bench.run_size(bytes);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "all_reduce_bench: rank {}: {}\n", mpi.world_rank(), error.what());
    mpi.abort(1);
  }
}
