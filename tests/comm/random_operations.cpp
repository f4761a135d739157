// Operations drawn at random, each result compared with a plain computation: groups of random meshes over
// invented nodes, sizes, types, ops, algorithms, memory and orders, several operations at once.
//   random_operations [--seed N] [--cases N] [--seconds S] [--deaths]
// Case k has the seed N + k, so that `--seed X --cases 1` repeats the case that a failure names. With
// --deaths (under mpirun --with-ft ulfm) ranks kill themselves at random moments, and the others go on
// without them.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/discover.hpp"
#include "comm/groups.hpp"
#include "comm/mpi_environment.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/slice.hpp"

namespace {

using namespace dtrain;

// Small, so that messages of many pieces are cheap: MPI counts in int, and a piece is 1 GiB otherwise.
constexpr std::size_t kLongestMessage = std::size_t{16} << 10;
constexpr std::size_t kGuardBytes = 64;
constexpr auto kGuard = std::byte{0xAB};
constexpr double kLossLimit_s = 30;  // for the ranks that are left to find each other

/// The same numbers on all ranks that draw in the same order.
class Chance {
 public:
  explicit Chance(std::uint64_t seed) : engine_(seed) {}
  /// In [0, n).
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_()) % n; }
  bool once_in(std::size_t n) { return below(n) == 0; }
  template <typename T, std::size_t N>
  T one_of(const std::array<T, N>& values) {
    return values[below(N)];
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

// Values are small whole numbers, exact in every type, also as sums over all ranks.

void encode(std::byte* place, comm::DataType type, int value) {
  const auto put = [place](auto number) { std::memcpy(place, &number, sizeof(number)); };
  const auto as_float = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &as_float, sizeof(bits));
  switch (type) {
    case comm::DataType::float32:
      return put(as_float);
    case comm::DataType::float64:
      return put(static_cast<double>(value));
    case comm::DataType::int32:
      return put(static_cast<std::int32_t>(value));
    case comm::DataType::int64:
      return put(static_cast<std::int64_t>(value));
    case comm::DataType::bfloat16:
      return put(static_cast<std::uint16_t>(bits >> 16));
    case comm::DataType::float16: {
      const std::uint32_t exponent = (bits >> 23) & 0xFFU;
      const std::uint32_t half =
          value == 0 ? 0 : ((bits >> 31) << 15) | ((exponent - 112) << 10) | ((bits >> 13) & 0x3FFU);
      return put(static_cast<std::uint16_t>(half));
    }
  }
}

int value_of(std::uint64_t salt, int world_rank, std::size_t index) {
  const std::uint64_t mixed =
      (index + salt * 7919 + static_cast<std::uint64_t>(world_rank) * 104729) * 0x9E3779B97F4A7C15ULL;
  return static_cast<int>(mixed >> 61) - 3;
}

/// Memory of an operation, with guards around it where it is this rank's own.
class Memory {
 public:
  Memory(std::size_t bytes, std::size_t shift)
      : own_(bytes + shift + 2 * kGuardBytes, kGuard),
        data_(own_.data() + kGuardBytes + shift),
        bytes_(bytes) {}
  Memory(comm::Group& group, std::size_t bytes)
      : shared_(group.allocate(bytes)), data_(static_cast<std::byte*>(shared_->data())), bytes_(bytes) {}

  std::byte* data() const { return data_; }
  bool is_shared() const { return shared_ != nullptr; }
  bool guards_are_whole() const {
    if (shared_) return true;
    const auto whole = [](std::byte b) { return b == kGuard; };
    return std::all_of(own_.data(), static_cast<const std::byte*>(data_), whole) &&
           std::all_of(static_cast<const std::byte*>(data_) + bytes_, own_.data() + own_.size(), whole);
  }

 private:
  std::unique_ptr<comm::SharedBuffer> shared_;
  std::vector<std::byte> own_;
  std::byte* data_;
  std::size_t bytes_;
};

enum class Kind {
  all_reduce,
  reduce_parts,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  barrier,
  messages
};
constexpr std::array kKinds = {Kind::all_reduce,     Kind::all_reduce, Kind::reduce_parts,
                               Kind::reduce_scatter, Kind::all_gather, Kind::all_to_all,
                               Kind::broadcast,      Kind::barrier,    Kind::messages};
constexpr std::array kNames = {"all_reduce", "reduce_parts", "reduce_scatter", "all_gather",
                               "all_to_all", "broadcast",    "barrier",        "messages"};
constexpr std::array kTypes = {comm::DataType::float32, comm::DataType::float64, comm::DataType::bfloat16,
                               comm::DataType::float16, comm::DataType::int32,   comm::DataType::int64};
constexpr std::array kOps = {comm::ReduceOp::sum, comm::ReduceOp::max, comm::ReduceOp::min};
constexpr std::array kAlgorithms = {comm::Algorithm::automatic, comm::Algorithm::ring, comm::Algorithm::tree,
                                    comm::Algorithm::hierarchical, comm::Algorithm::mpi};

/// What all ranks agree on; what depends on the size of a rank's own group is taken from it locally.
struct Drawn {
  Kind kind = Kind::barrier;
  std::size_t group = 0;
  comm::DataType type = comm::DataType::float32;
  comm::ReduceOp op = comm::ReduceOp::sum;
  comm::Algorithm algorithm = comm::Algorithm::automatic;
  std::size_t count = 0;
  std::size_t second_count = 0;  // of messages
  std::size_t turn = 0;          // root, or distance to the peer
  std::size_t shift = 0;         // elements off the alignment
  bool shared = false;
  bool in_place = false;
  std::uint64_t salt = 0;
};

std::size_t draw_count(Chance& chance, comm::DataType type) {
  const std::size_t elements = kLongestMessage / comm::size_of(type);
  switch (chance.below(10)) {
    case 0:
      return chance.below(3);
    case 1:
    case 2:
    case 3:
      return chance.below(200);
    case 4:
    case 5:
      return chance.below(20'000);
    case 6:
    case 7:
      return (1 + chance.below(3)) * elements + chance.below(3) - 1;  // about a limit of messages
    case 8:
      return chance.below(4 * elements);
    default:
      return chance.below(300'000);
  }
}

Drawn draw(Chance& chance, bool with_mpi) {
  Drawn drawn;
  drawn.kind = chance.one_of(kKinds);
  drawn.group = chance.below(6);
  drawn.type = chance.one_of(kTypes);
  drawn.op = chance.one_of(kOps);
  drawn.algorithm = kAlgorithms[chance.below(kAlgorithms.size() - (with_mpi ? 0 : 1))];
  drawn.count = draw_count(chance, drawn.type);
  drawn.second_count = draw_count(chance, drawn.type);
  drawn.turn = chance.below(1 << 20);
  drawn.shift = chance.once_in(3) ? chance.below(64) : 0;
  drawn.shared = chance.once_in(2);
  drawn.in_place = chance.once_in(2);
  drawn.salt = chance.below(1 << 20);
  return drawn;
}

class WrongResult final : public std::exception {
 public:
  explicit WrongResult(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

/// One operation of this rank: submitted, waited for, and compared.
class Trial {
 public:
  Trial(const Drawn& drawn, comm::Group& group)
      : drawn_(drawn), group_(group), n_(static_cast<std::size_t>(group.size())) {
    const std::size_t count = drawn.kind == Kind::all_to_all ? drawn.count / n_ * n_ : drawn.count;
    whole_ = count;
    const Range part = part_of(static_cast<std::int64_t>(count), group.rank(), group.size());
    begin_ = static_cast<std::size_t>(part.begin);
    part_ = static_cast<std::size_t>(part.size());
    switch (drawn.kind) {
      case Kind::all_reduce:
      case Kind::reduce_parts:
      case Kind::broadcast:
        input_ = output_ = make(count);
        break;
      case Kind::reduce_scatter:
        input_ = make(count);
        output_ = drawn.in_place ? input_ : make_own(part_);
        break;
      case Kind::all_gather:
        output_ = make(count);
        input_ = drawn.in_place ? output_ : drawn.shared ? output_ : make_own(part_);
        break;
      case Kind::all_to_all:
        input_ = make_own(count);
        output_ = make_own(count);
        break;
      case Kind::barrier:
        break;
      case Kind::messages:
        input_ = make_own(count);
        output_ = make_own(count);
        second_input_ = make_own(drawn.second_count);
        second_output_ = make_own(drawn.second_count);
        break;
    }
    fill();
  }

  void submit() {
    const auto type = drawn_.type;
    const auto buffer = [type](const std::shared_ptr<Memory>& memory, std::size_t first, std::size_t count) {
      return comm::Buffer{memory->data() + first * comm::size_of(type), count, type};
    };
    switch (drawn_.kind) {
      case Kind::all_reduce:
        handles_ = {group_.all_reduce(buffer(input_, 0, whole_), drawn_.op, drawn_.algorithm)};
        break;
      case Kind::reduce_parts:
        reduced_ = group_.reduced_part(buffer(input_, 0, whole_), drawn_.algorithm);
        handles_ = {group_.reduce_parts(buffer(input_, 0, whole_), drawn_.op, drawn_.algorithm)};
        break;
      case Kind::reduce_scatter:
        handles_ = {group_.reduce_scatter(buffer(input_, 0, whole_),
                                          buffer(output_, output_ == input_ ? begin_ : 0, part_), drawn_.op)};
        break;
      case Kind::all_gather:
        handles_ = {group_.all_gather(buffer(input_, output_ == input_ ? begin_ : 0, part_),
                                      buffer(output_, 0, whole_))};
        break;
      case Kind::all_to_all:
        handles_ = {group_.all_to_all(buffer(input_, 0, whole_), buffer(output_, 0, whole_))};
        break;
      case Kind::broadcast:
        handles_ = {group_.broadcast(buffer(input_, 0, whole_), root())};
        break;
      case Kind::barrier:
        handles_ = {group_.barrier()};
        break;
      case Kind::messages:
        if (n_ == 1) break;
        handles_ = {group_.send(buffer(input_, 0, whole_), to()),
                    group_.send(buffer(second_input_, 0, drawn_.second_count), to()),
                    group_.receive(buffer(output_, 0, whole_), from()),
                    group_.receive(buffer(second_output_, 0, drawn_.second_count), from())};
        break;
    }
  }

  std::vector<comm::Handle>& handles() { return handles_; }

  /// Throws WrongResult.
  void check() const {
    if (drawn_.kind == Kind::barrier || (drawn_.kind == Kind::messages && n_ == 1)) return;
    for (const auto& memory : {input_, output_, second_input_, second_output_}) {
      if (memory && !memory->guards_are_whole()) fail("wrote outside of its memory");
    }
    switch (drawn_.kind) {
      case Kind::all_reduce:
        return compare(*output_, 0, whole_, [this](std::size_t i) { return reduced(i); });
      case Kind::reduce_parts:
        return compare(*output_, static_cast<std::size_t>(reduced_.begin),
                       static_cast<std::size_t>(reduced_.end), [this](std::size_t i) { return reduced(i); });
      case Kind::reduce_scatter: {
        const std::size_t first = output_ == input_ ? begin_ : 0;
        return compare(*output_, first, first + part_,
                       [&](std::size_t i) { return reduced(i - first + begin_); });
      }
      case Kind::all_gather:
        return compare(*output_, 0, whole_, [this](std::size_t i) { return value(owner_of(i), i); });
      case Kind::all_to_all: {
        const std::size_t block = whole_ / n_;
        const auto me = static_cast<std::size_t>(group_.rank());
        return compare(*output_, 0, whole_, [&](std::size_t i) {
          return value(static_cast<int>(i / block), me * block + i % block);
        });
      }
      case Kind::broadcast:
        return compare(*output_, 0, whole_, [this](std::size_t i) { return value(root(), i); });
      case Kind::messages:
        compare(*output_, 0, whole_, [this](std::size_t i) { return value(from(), i); });
        return compare(*second_output_, 0, drawn_.second_count,
                       [this](std::size_t i) { return value(from(), i + 1); });
      case Kind::barrier:
        return;
    }
  }

  std::string text() const {
    return std::string(kNames[static_cast<std::size_t>(drawn_.kind)]) + " of " + std::to_string(whole_) +
           " " + std::string(comm::name_of(drawn_.type)) + " (" + std::string(comm::name_of(drawn_.op)) +
           ", " + std::string(comm::name_of(drawn_.algorithm)) + (drawn_.shared ? ", shared" : "") +
           (drawn_.in_place ? ", in place" : "") + ") in group " + group_.name() + " of " +
           std::to_string(n_);
  }
  comm::Group& group() const { return group_; }

 private:
  std::shared_ptr<Memory> make_own(std::size_t count) const {
    const std::size_t size = comm::size_of(drawn_.type);
    return std::make_shared<Memory>(count * size, drawn_.shift * size);
  }
  std::shared_ptr<Memory> make(std::size_t count) const {
    if (!drawn_.shared) return make_own(count);
    return std::make_shared<Memory>(group_, count * comm::size_of(drawn_.type));
  }

  int value(int group_rank, std::size_t index) const {
    return value_of(drawn_.salt, group_.world_rank_of(group_rank), index);
  }
  int reduced(std::size_t index) const {
    int result = value(0, index);
    for (int rank = 1; rank < group_.size(); ++rank) {
      const int other = value(rank, index);
      result = drawn_.op == comm::ReduceOp::sum   ? result + other
               : drawn_.op == comm::ReduceOp::max ? std::max(result, other)
                                                  : std::min(result, other);
    }
    return result;
  }
  int owner_of(std::size_t index) const {
    for (int rank = 0;; ++rank) {
      if (static_cast<std::int64_t>(index) <
          part_of(static_cast<std::int64_t>(whole_), rank, group_.size()).end)
        return rank;
    }
  }
  int root() const { return static_cast<int>(drawn_.turn % n_); }
  int to() const { return static_cast<int>((static_cast<std::size_t>(group_.rank()) + distance()) % n_); }
  int from() const {
    return static_cast<int>((static_cast<std::size_t>(group_.rank()) + n_ - distance()) % n_);
  }
  std::size_t distance() const { return 1 + drawn_.turn % (n_ - 1); }

  void put(const Memory& memory, std::size_t place, int number) const {
    encode(memory.data() + place * comm::size_of(drawn_.type), drawn_.type, number);
  }
  void fill() {
    const int me = group_.rank();
    if (drawn_.kind == Kind::all_gather) {
      const std::size_t first = output_ == input_ ? begin_ : 0;
      for (std::size_t i = 0; i < part_; ++i) put(*input_, first + i, value(me, begin_ + i));
      return;
    }
    if (drawn_.kind == Kind::broadcast && me != root()) return;
    for (std::size_t i = 0; input_ && i < whole_; ++i) put(*input_, i, value(me, i));
    for (std::size_t i = 0; second_input_ && i < drawn_.second_count; ++i)
      put(*second_input_, i, value(me, i + 1));
  }

  template <typename Expected>
  void compare(const Memory& memory, std::size_t first, std::size_t end, Expected expected) const {
    const std::size_t size = comm::size_of(drawn_.type);
    std::array<std::byte, 8> wanted{};
    for (std::size_t i = first; i < end; ++i) {
      encode(wanted.data(), drawn_.type, expected(i));
      if (std::memcmp(memory.data() + i * size, wanted.data(), size) == 0) continue;
      fail("element " + std::to_string(i) + " is not " + std::to_string(expected(i)));
    }
  }
  [[noreturn]] void fail(const std::string& why) const { throw WrongResult(text() + ": " + why); }

  Drawn drawn_;
  comm::Group& group_;
  std::size_t n_;
  std::size_t whole_ = 0;  // elements
  std::size_t begin_ = 0;  // of this rank's part
  std::size_t part_ = 0;
  Range reduced_;
  std::shared_ptr<Memory> input_;
  std::shared_ptr<Memory> output_;
  std::shared_ptr<Memory> second_input_;
  std::shared_ptr<Memory> second_output_;
  std::vector<comm::Handle> handles_;
};

/// The ranks of a job dealt at random to up to as many invented nodes.
topology::Cluster invented(topology::Cluster cluster, Chance& chance) {
  const std::size_t nodes = 1 + chance.below(cluster.ranks.size());
  std::map<std::size_t, int> number_of;
  std::vector<int> ranks_on(nodes, 0);
  for (auto& place : cluster.ranks) {
    const auto drawn = chance.below(nodes);
    place.node = number_of.emplace(drawn, static_cast<int>(number_of.size())).first->second;
    place.local_rank = ranks_on[static_cast<std::size_t>(place.node)]++;
  }
  return cluster;
}

topology::MeshShape draw_shape(Chance& chance, int ranks) {
  const auto divisor = [&chance](int n) {
    std::vector<int> divisors;
    for (int d = 1; d <= n; ++d) {
      if (n % d == 0) divisors.push_back(d);
    }
    return divisors[chance.below(divisors.size())];
  };
  topology::MeshShape shape;
  shape.data = divisor(ranks);
  shape.pipe = divisor(ranks / shape.data);
  shape.tensor = ranks / shape.data / shape.pipe;
  return shape;
}

comm::AlgorithmTable draw_table(Chance& chance) {
  std::vector<comm::AlgorithmTable::Entry> entries;
  for (std::size_t bytes = 1 + chance.below(2000); bytes < 2'000'000 && !chance.once_in(4);
       bytes *= 2 + chance.below(30))
    entries.push_back({bytes, kAlgorithms[1 + chance.below(3)]});
  return comm::AlgorithmTable(entries);
}

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
    const auto cluster = invented(comm::discover_cluster(world, comm::affinity_mask()), chance_);
    comm::CommConfig config;
    config.all_reduce = kAlgorithms[chance_.below(kAlgorithms.size() - (deaths ? 1 : 0))];
    config.order = chance_.once_in(2) ? topology::RankOrder::placed : topology::RankOrder::launched;
    config.drive = chance_.once_in(2) ? comm::Drive::inline_ : comm::Drive::thread;
    config.timeout_s = 40;
    config.recovery = recovers;
    const topology::Mesh mesh(cluster, draw_shape(chance_, world.size()), config.order);
    groups_.emplace(comm::make_groups(world, cluster, mesh, config, sink_));
    groups_->use(draw_table(chance_));
  }

  /// Operations that this rank took part in. Throws WrongResult or Error.
  std::size_t run() {
    const std::size_t rounds = 4 + chance_.below(12);
    Deaths death;
    if (deaths_ && world_.size() > 1) {
      death = {.victim = static_cast<int>(chance_.below(static_cast<std::size_t>(world_.size()))),
               .round = chance_.below(rounds),
               .after = chance_.below(4)};
    }
    std::size_t done = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
      const bool dies = death.victim == world_.rank() && round == death.round;
      done += run_round(dies ? std::optional(death.after) : std::nullopt);
    }
    groups_->world().barrier().wait();  // whoever has lost a rank learns of it here at the latest
    return done;
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
      const Drawn drawn = draw(chance_, !deaths_);
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
      operations += Case(seed + number, *world, options.deaths, mpi.can_recover()).run();
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
