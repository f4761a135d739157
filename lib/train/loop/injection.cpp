#include "train/loop/injection.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::train {
namespace {

using Kind = InjectedFault::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 12> kKinds = {{{"kill", Kind::kill},
                                                                       {"stop", Kind::stop},
                                                                       {"fail", Kind::fail},
                                                                       {"slow", Kind::slow},
                                                                       {"skip", Kind::skip},
                                                                       {"count", Kind::count},
                                                                       {"dtype", Kind::dtype},
                                                                       {"order", Kind::order},
                                                                       {"nan", Kind::nan},
                                                                       {"drift", Kind::drift},
                                                                       {"disk_full", Kind::disk_full},
                                                                       {"link_down", Kind::link_down}}};

constexpr std::string_view kForm = "write one such as kill:rank=1,phase=backward,step=7";

std::vector<std::string> cut(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <typename Number>
Number number_of(const std::string& fault, const std::string& key, const std::string& text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) {
    throw usage_error(fmt::format("{}={} is not a number", key, text), "--inject " + fault,
                      std::string(kForm));
  }
  return value;
}

Kind kind_of(const std::string& fault, const std::string& name) {
  const auto place = std::ranges::find(kKinds, name, &std::pair<std::string_view, Kind>::first);
  if (place != kKinds.end()) return place->second;
  std::vector<std::string_view> names;
  for (const auto& [known, kind] : kKinds) names.push_back(known);
  throw usage_error(fmt::format("there is no fault \"{}\"", name), "--inject " + fault,
                    fmt::format("use one of {}", fmt::join(names, ", ")));
}

void check(const InjectedFault& found, const std::string& fault, int world_size) {
  const std::string subject = "--inject " + fault;
  const auto& phases = InjectedFault::phases();
  if (found.rank < 0 || found.rank >= world_size) {
    throw usage_error(fmt::format("there is no rank {}", found.rank), subject,
                      fmt::format("use 0 to {}", world_size - 1));
  }
  if (std::ranges::find(phases, found.phase) == phases.end()) {
    throw usage_error(fmt::format("there is no phase \"{}\"", found.phase), subject,
                      fmt::format("use one of {}", fmt::join(phases, ", ")));
  }
  if (found.step < 1) throw usage_error("steps count from 1", subject, "use step=1 or more");
  if (!(found.seconds >= 0))
    throw usage_error("time does not run backwards", subject, "use seconds=0 or more");
  if (!(found.factor > 1)) throw usage_error("would not be slower", subject, "use a factor above 1");
}

InjectedFault parse_fault(const std::string& fault, int world_size) {
  const auto colon = std::min(fault.find(':'), fault.size());
  InjectedFault found;
  found.kind = kind_of(fault, fault.substr(0, colon));
  for (const auto& part :
       colon < fault.size() ? cut(fault.substr(colon + 1), ',') : std::vector<std::string>()) {
    const auto equals = std::min(part.find('='), part.size());
    const auto key = part.substr(0, equals);
    const auto value = equals < part.size() ? part.substr(equals + 1) : std::string();
    if (key == "rank") {
      found.rank = number_of<int>(fault, key, value);
    } else if (key == "phase") {
      found.phase = value;
    } else if (key == "step") {
      found.step = number_of<std::int64_t>(fault, key, value);
    } else if (key == "factor") {
      found.factor = number_of<double>(fault, key, value);
    } else if (key == "seconds") {
      found.seconds = number_of<double>(fault, key, value);
    } else {
      throw usage_error(fmt::format("\"{}\" is not rank, phase, step, factor or seconds", key),
                        "--inject " + fault, std::string(kForm));
    }
  }
  check(found, fault, world_size);
  return found;
}

std::string_view phase_of(Phase phase) {
  return phase == Phase::exposed_communication ? "all_reduce" : phase_name(phase);
}

/// Every later write to a file fails, and says so instead of ending the process.
void fill_disk() {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit nothing{0, 0};
  ::setrlimit(RLIMIT_FSIZE, &nothing);
}

/// All network interfaces of this node that are up, but for the loopback.
std::vector<std::string> links_up() {
  std::vector<std::string> names;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return names;
  for (const ifaddrs* link = first; link != nullptr; link = link->ifa_next) {
    const bool is_up = (link->ifa_flags & IFF_UP) != 0;
    const bool known = std::ranges::find(names, link->ifa_name) != names.end();
    if ((link->ifa_flags & IFF_LOOPBACK) == 0 && is_up && !known) names.emplace_back(link->ifa_name);
  }
  ::freeifaddrs(first);
  return names;
}

void set_link(const std::string& name, bool up) {
  ifreq request{};
  name.copy(request.ifr_name, sizeof request.ifr_name - 1);
  const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
  bool done = ::ioctl(socket, SIOCGIFFLAGS, &request) == 0;
  request.ifr_flags = static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  done = done && ::ioctl(socket, SIOCSIFFLAGS, &request) == 0;
  const std::string why = std::strerror(errno);
  ::close(socket);
  require(done, fmt::format("the network interface {} cannot be changed ({})", name, why),
          {.subject = "--inject link_down", .advice = "give the ranks CAP_NET_ADMIN"});
}

void take_links_down(double seconds) {
  const auto names = links_up();
  for (const auto& name : names) set_link(name, false);
  if (seconds == 0) return;
  std::thread([names, seconds] {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    for (const auto& name : names) set_link(name, true);
  }).detach();
}

/// Passes everything on, but for one sum in a step.
class TamperedGroup final : public comm::Group {
 public:
  explicit TamperedGroup(comm::Group& group) : group_(group) {}
  void tamper_with_next(Kind kind) { kind_ = kind; }

  const std::string& name() const override { return group_.name(); }
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  int world_rank_of(int group_rank) const override { return group_.world_rank_of(group_rank); }
  std::unique_ptr<comm::SharedBuffer> allocate(std::size_t bytes) override { return group_.allocate(bytes); }
  std::unique_ptr<comm::SharedBuffer> allocate_common(std::size_t bytes) override {
    return group_.allocate_common(bytes);
  }
  comm::Handle all_reduce(comm::Buffer values, comm::ReduceOp op, comm::Algorithm algorithm) override {
    return tampers(values) ? comm::Handle() : group_.all_reduce(values, op, algorithm);
  }
  Range reduced_part(comm::Buffer values, comm::Algorithm algorithm) const override {
    return group_.reduced_part(values, algorithm);
  }
  comm::Handle reduce_parts(comm::Buffer values, comm::ReduceOp op, comm::Algorithm algorithm) override {
    return tampers(values) ? comm::Handle() : group_.reduce_parts(values, op, algorithm);
  }
  comm::Handle reduce_scatter(comm::Buffer input, comm::Buffer output, comm::ReduceOp op) override {
    return group_.reduce_scatter(input, output, op);
  }
  comm::Handle all_gather(comm::Buffer input, comm::Buffer output) override {
    return group_.all_gather(input, output);
  }
  comm::Handle all_to_all(comm::Buffer input, comm::Buffer output) override {
    return tampers(input) ? comm::Handle() : group_.all_to_all(input, output);
  }
  comm::Handle broadcast(comm::Buffer values, int root) override { return group_.broadcast(values, root); }
  comm::Handle send(comm::Buffer values, int to) override { return group_.send(values, to); }
  comm::Handle receive(comm::Buffer values, int from) override { return group_.receive(values, from); }
  comm::Handle barrier() override { return group_.barrier(); }

 private:
  /// Whether the operation is to be left out; changes what it is about to pass otherwise.
  bool tampers(comm::Buffer& values) {
    const auto kind = std::exchange(kind_, std::nullopt);
    if (kind == Kind::count) --values.count;
    if (kind == Kind::dtype) {
      const bool wide = comm::size_of(values.type) == 8;
      values.type = wide ? comm::DataType::int64 : comm::DataType::int32;
    }
    if (kind == Kind::order) group_.barrier().wait();
    return kind == Kind::skip;
  }

  comm::Group& group_;
  std::optional<Kind> kind_;
};

}  // namespace

const std::vector<std::string>& InjectedFault::phases() {
  static const std::vector<std::string> kPhases = {"forward",    "backward",   "all_reduce", "optimizer",
                                                   "evaluation", "checkpoint", "test",       "recovery"};
  return kPhases;
}

std::vector<InjectedFault> parse_faults(const std::string& text, int world_size) {
  std::vector<InjectedFault> faults;
  if (text.empty()) return faults;
  for (const auto& fault : cut(text, ';')) faults.push_back(parse_fault(fault, world_size));
  return faults;
}

Injection::Injection(const std::vector<InjectedFault>& faults, int rank, SpanSink& sink)
    : PassingSpanSink(sink) {
  std::ranges::copy_if(faults, std::back_inserter(faults_),
                       [rank](const InjectedFault& fault) { return fault.rank == rank; });
}

void Injection::begin_step(std::int64_t step) {
  step_ = step;
  auto* group = static_cast<TamperedGroup*>(tampered_.get());
  for (const auto& fault : faults_) {
    if (fault.kind == Kind::fail && fault.step == step) {
      throw Error("fails here because it was told to",
                  {.subject = "--inject fail", .advice = "leave it out"});
    }
    if (fault.kind == Kind::disk_full && fault.step == step) fill_disk();
    if (fault.kind == Kind::link_down && fault.step == step) take_links_down(fault.seconds);
    const bool of_sums = fault.kind == Kind::skip || fault.kind == Kind::count || fault.kind == Kind::dtype ||
                         fault.kind == Kind::order;
    if (of_sums && fault.step == step && group != nullptr) group->tamper_with_next(fault.kind);
  }
}

void Injection::reach(std::string_view phase) {
  for (const auto& fault : faults_) {
    const bool at_any_step = phase == "recovery";
    if (fault.phase != phase || (fault.step != step_ && !at_any_step)) continue;
    if (fault.kind == Kind::kill) std::raise(SIGKILL);
    if (fault.kind == Kind::stop) std::raise(SIGSTOP);
  }
}

bool Injection::has(Kind kind) const {
  return std::ranges::any_of(
      faults_, [&](const InjectedFault& fault) { return fault.kind == kind && fault.step == step_; });
}

bool Injection::spoils_loss() const { return has(Kind::nan); }

bool Injection::drifts() const { return has(Kind::drift); }

double Injection::slowness() const {
  double factor = 1;
  for (const auto& fault : faults_) {
    if (fault.kind == Kind::slow && step_ >= fault.step) factor *= fault.factor;
  }
  return factor;
}

comm::Group& Injection::tampered(comm::Group& group) {
  tampered_ = std::make_unique<TamperedGroup>(group);
  return *tampered_;
}

void Injection::enter(Phase phase, std::string_view name) {
  PassingSpanSink::enter(phase, name);
  if (depth_ < open_.size()) open_[depth_] = {.phase = phase, .start_ns = steady_ns()};
  ++depth_;
  // A rank that comes last to a step's sums does not wait for them, and so is never in all_reduce.
  if (phase == Phase::optimizer) reach("all_reduce");
  reach(phase_of(phase));
}

void Injection::leave() {
  --depth_;
  if (depth_ < open_.size()) {
    const auto& [phase, start_ns] = open_[depth_];
    const double factor = phase == Phase::forward || phase == Phase::backward ? slowness() : 1;
    if (factor > 1) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::nano>(
          (factor - 1) * static_cast<double>(steady_ns() - start_ns)));
    }
  }
  PassingSpanSink::leave();
}

}  // namespace dtrain::train
