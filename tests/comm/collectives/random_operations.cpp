// Operations drawn at random, each result compared with a plain computation: groups of random meshes over
// invented nodes, sizes, types, ops, algorithms, memory, lengths of pieces and orders, several operations at
// once.
//   random_operations [--seed N] [--cases N] [--seconds S] [--deaths]
// Case k has the seed N + k, so that `--seed X --cases 1` repeats the case that a failure names. With
// --deaths (under mpirun --with-ft ulfm) ranks kill themselves at random moments, and the others go on
// without them.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/collectives/random_drawing.hpp"
#include "comm/collectives/random_trial.hpp"
#include "comm/groups.hpp"
#include "comm/mpi/mpi_environment.hpp"
#include "comm/survey/discover.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace {

using namespace dtrain;
using comm::Chance;
using comm::Drawn;
using comm::Trial;
using comm::WrongResult;

constexpr double kLossLimit_s = 30;  // for the ranks that are left to find each other

struct Deaths {
  int victim = -1;        // world rank; negative: none
  std::size_t round = 0;  // of the case
  std::size_t after = 0;  // operations of that round that it submits
};

/// Groups on a random mesh, and rounds of operations on them.
class Case {
 public:
  Case(std::uint64_t seed, const comm::Communicator& world, bool deaths, bool recovers)
      : chance_(seed),
        own_chance_(seed * 1000 + static_cast<std::uint64_t>(world.rank())),
        world_(world),
        deaths_(deaths) {
    const auto cluster = comm::invented(comm::discover_cluster(world, comm::affinity_mask()), chance_);
    comm::CommConfig config;
    config.all_reduce = comm::draw_algorithm(chance_, !deaths);
    config.order = chance_.once_in(2) ? topology::RankOrder::placed : topology::RankOrder::launched;
    config.drive = chance_.once_in(2) ? comm::Drive::inline_ : comm::Drive::thread;
    config.timeout_s = 40;
    config.piece_bytes = piece_bytes_ = comm::draw_piece_bytes(chance_);
    config.recovery = recovers;
    const topology::Mesh mesh(cluster, comm::draw_shape(chance_, world.size()), config.order);
    groups_.emplace(comm::make_groups(world, cluster, mesh, config, sink_));
    groups_->use(comm::draw_table(chance_));
  }

  /// Counts into `done` the operations that this rank took part in. Throws WrongResult or Error.
  void run(std::size_t& done) {
    const std::size_t rounds = 4 + chance_.below(12);
    Deaths death;
    if (deaths_ && world_.size() > 1) {
      death = {.victim = static_cast<int>(chance_.below(static_cast<std::size_t>(world_.size()))),
               .round = chance_.below(rounds),
               .after = chance_.below(4)};
    }
    for (std::size_t round = 0; round < rounds; ++round) {
      const bool dies = death.victim == world_.rank() && round == death.round;
      done += run_round(dies ? std::optional(death.after) : std::nullopt);
    }
    groups_->world().barrier().wait();  // whoever has lost a rank learns of it here at the latest
  }

 private:
  comm::Group* group_at(std::size_t index) {
    switch (index) {
      case 0:
        return &groups_->world();
      case 1:
        return &groups_->data();
      case 2:
        return &groups_->pipe();
      case 3:
        return &groups_->tensor();
      case 4:
        return &groups_->node();
      default:
        return groups_->is_leader() ? &groups_->leaders() : nullptr;
    }
  }

  std::size_t run_round(std::optional<std::size_t> dies_after) {
    std::vector<std::unique_ptr<Trial>> trials;
    const std::size_t at_once = 1 + chance_.below(3);
    for (std::size_t i = 0; i < at_once; ++i) {
      const Drawn drawn = comm::draw(chance_, !deaths_, piece_bytes_);
      if (comm::Group* group = group_at(drawn.group))
        trials.push_back(std::make_unique<Trial>(drawn, *group));
    }
    std::vector<comm::Handle> handles;
    for (std::size_t i = 0; i < trials.size(); ++i) {
      if (dies_after == i) std::raise(SIGKILL);
      trials[i]->submit();
      handles.insert(handles.end(), trials[i]->handles().begin(), trials[i]->handles().end());
      if (own_chance_.once_in(3)) groups_->queue().progress();
    }
    if (dies_after) std::raise(SIGKILL);
    std::shuffle(handles.begin(), handles.end(), own_chance_.engine());
    for (const auto& handle : handles) handle.wait();
    for (const auto& trial : trials) trial->check();
    // Others may still read what this rank has reduced in parts, or is about to free.
    for (const auto& trial : trials) trial->group().barrier().wait();
    return trials.size();
  }

  Chance chance_;
  Chance own_chance_;
  const comm::Communicator& world_;
  bool deaths_;
  std::size_t piece_bytes_ = 0;
  NullSpanSink sink_;
  std::optional<comm::Groups> groups_;
};

struct Options {
  std::optional<std::uint64_t> seed;
  std::uint64_t cases = UINT64_MAX;
  double seconds = 10;
  bool deaths = false;
};

Options read(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto number = [&] { return std::strtoull(i + 1 < argc ? argv[++i] : "0", nullptr, 10); };
    if (word == "--seed") options.seed = number();
    if (word == "--cases") options.cases = number();
    if (word == "--seconds") options.seconds = static_cast<double>(number());
    if (word == "--deaths") options.deaths = true;
  }
  return options;
}

/// The ranks that are left; nothing where none is gone. Throws Error.
comm::Loss leave_lost_behind(comm::MpiEnvironment& mpi) {
  while (true) {
    try {
      return mpi.leave_lost_behind(false, kLossLimit_s);
    } catch (const Error& error) {
      if (error.code() != ExitCode::lost_rank) throw;
    }
  }
}

int run(const Options& options, comm::MpiEnvironment& mpi) {
  const double end_s = steady_s() + options.seconds;
  auto world = std::make_optional(comm::Communicator::duplicate(mpi.world()));
  const auto drawn = std::chrono::system_clock::now().time_since_epoch().count() / 1'000'000 % 1'000'000'000;
  const auto seed = static_cast<std::uint64_t>(world->max(
      world->rank() == 0 ? static_cast<std::int64_t>(options.seed.value_or(static_cast<std::uint64_t>(drawn)))
                         : 0));
  if (world->rank() == 0) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
  }
  std::uint64_t number = 0;
  std::size_t operations = 0;
  std::size_t deaths = 0;
  while (number < options.cases) {
    const auto named = [&] {
      return "case " + std::to_string(seed + number) + " on " + std::to_string(world->size()) + " ranks";
    };
    try {
      if (world->max(std::int64_t{steady_s() > end_s ? 1 : 0}) == 1) break;
      Case(seed + number, *world, options.deaths, mpi.can_recover()).run(operations);
      if (options.deaths && world->size() > 1) throw WrongResult("the death of a rank was not noticed");
    } catch (const WrongResult& wrong) {
      std::printf("FAILED %s: rank %d: %s\n", named().c_str(), mpi.first_rank(), wrong.what());
      std::fflush(stdout);
      return 1;
    } catch (const Error& error) {
      if (!options.deaths || error.code() != ExitCode::lost_rank) {
        std::printf("FAILED %s: rank %d: exit code %d: %s\n", named().c_str(), mpi.first_rank(),
                    static_cast<int>(error.code()), error.what());
        std::fflush(stdout);
        return 1;
      }
      const auto loss = leave_lost_behind(mpi);
      if (loss.gone.empty()) {
        std::printf("FAILED %s: rank %d says that a rank is gone, and all are there: %s\n", named().c_str(),
                    mpi.first_rank(), error.what());
        std::fflush(stdout);
        return 1;
      }
      deaths += loss.gone.size();
      world.emplace(comm::Communicator::duplicate(mpi.world()));
    }
    ++number;
    if (options.deaths && world->size() == 1) break;
  }
  if (world->rank() == 0) {
    std::printf("%llu cases, %zu operations of rank %d, %zu deaths: all as computed\n",
                static_cast<unsigned long long>(number), operations, mpi.first_rank(), deaths);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read(argc, argv);
  comm::MpiEnvironment mpi(argc, argv, options.deaths ? comm::Recovery::on : comm::Recovery::off);
  const int code = run(options, mpi);
  if (code != 0) mpi.abort(code);
  if (mpi.can_recover()) mpi.exit_without_finalising(0);
  return 0;
}
