#include "comm/faults/injection.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>

#include "comm/faults/tampered_group.hpp"
#include "core/error.hpp"
#include "core/file_descriptor.hpp"

namespace dtrain::comm {
namespace {

using Kind = InjectedFault::Kind;

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
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM, 0));
  bool done = ::ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0;
  request.ifr_flags = static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
  done = done && ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
  const std::string why = std::strerror(errno);
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

}  // namespace

Injection::Injection(const std::vector<InjectedFault>& faults, int rank, SpanSink& sink)
    : StretchedCompute(sink) {
  std::ranges::copy_if(faults, std::back_inserter(faults_),
                       [rank](const InjectedFault& fault) { return fault.rank == rank; });
}

Injection::~Injection() = default;

void Injection::begin_step(std::int64_t step) {
  step_ = step;
  stretch(slowness());
  for (const auto& fault : faults_) {
    if (fault.kind == Kind::fail && fault.step == step) {
      throw Error("fails here because it was told to",
                  {.subject = "--inject fail", .advice = "leave it out"});
    }
    if (fault.kind == Kind::disk_full && fault.step == step) fill_disk();
    if (fault.kind == Kind::link_down && fault.step == step) take_links_down(fault.seconds);
    if (fault.is_of_sum() && fault.step == step && tampered_ != nullptr)
      tampered_->tamper_with_next(fault.kind);
  }
}

void Injection::reach(std::string_view phase) {
  const auto is_due = [&](const InjectedFault& fault, Kind kind) {
    return fault.kind == kind && fault.phase == phase && (fault.step == step_ || phase == "recovery");
  };
  if (std::ranges::any_of(faults_, [&](const auto& fault) { return is_due(fault, Kind::kill); }))
    std::raise(SIGKILL);
  // Once, also in a step of several pieces: a launcher that ends the job wakes the rank with SIGCONT, and one
  // that stopped again would outlive it.
  if (std::erase_if(faults_, [&](const auto& fault) { return is_due(fault, Kind::stop); }) > 0)
    std::raise(SIGSTOP);
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

Group& Injection::tampered(Group& group) {
  tampered_ = std::make_unique<TamperedGroup>(group);
  return *tampered_;
}

void Injection::enter(Phase phase, std::string_view name) {
  StretchedCompute::enter(phase, name);
  // A rank that comes last to a step's sums does not wait for them, and so is never in all_reduce.
  if (phase == Phase::optimizer) reach("all_reduce");
  reach(phase_of(phase));
}

}  // namespace dtrain::comm
