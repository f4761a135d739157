#include "comm/watch/stop_signals.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string_view>

#include "core/clock.hpp"

namespace dtrain::comm {
namespace {

constexpr std::array kSignals = {SIGUSR1, SIGTERM, SIGINT};
volatile std::sig_atomic_t asked_to_stop = 0;
volatile std::sig_atomic_t speaks = 0;
std::atomic<std::int64_t> input_ended_ns = 0;  // when that was seen; 0: it is open
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a handler uses it");
constexpr std::int64_t kJustEndedNs = 200'000'000;
std::array<struct sigaction, kSignals.size()> before;
struct sigaction before_continuing;

/// Only a pipe or terminal whose other end is closed has hung up.
bool input_has_hung_up() {
  struct pollfd input = {.fd = STDIN_FILENO, .events = 0, .revents = 0};
  return ::poll(&input, 1, 0) == 1 && (input.revents & (POLLHUP | POLLNVAL)) != 0;
}

void say(int file) {
  constexpr std::string_view kSaid =
      "\ndtrain: stops after this step and writes a checkpoint; once more: ends at once\n";
  [[maybe_unused]] const auto written = ::write(file, kSaid.data(), kSaid.size());
}

/// A handler: what it calls may be called in one (POSIX.1-2017, 2.4.3).
void remember(int signal) {
  const bool first = asked_to_stop == 0;
  asked_to_stop = 1;
  if (signal == SIGINT) say(STDERR_FILENO);
  if (signal != SIGTERM || speaks == 0 || !first) return;
  const int error = errno;
  const int terminal = ::open("/dev/tty", O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (terminal >= 0) {
    say(terminal);
    ::close(terminal);
  }
  errno = error;
}

/// SIGCONT comes from mpirun also when a suspended job goes on: then its pipe is as it was.
void remember_closing(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const int error = errno;
  const std::int64_t ended_ns = input_ended_ns.load(std::memory_order_relaxed);
  const bool just_ended = ended_ns == 0 ? input_has_hung_up() : steady_ns() - ended_ns < kJustEndedNs;
  if (info->si_pid == ::getppid() && just_ended) remember(SIGTERM);
  errno = error;
}

}  // namespace

StopSignals::StopSignals(Voice voice) {
  asked_to_stop = 0;
  speak_as(voice);
  struct sigaction action = {};
  action.sa_handler = &remember;
  // mpirun's processes are not in the terminal's foreground: with `stty tostop` this would stop one that
  // writes.
  sigaddset(&action.sa_mask, SIGTTOU);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    action.sa_flags = kSignals[i] == SIGINT ? SA_RESTART | SA_RESETHAND : SA_RESTART;
    sigaction(kSignals[i], &action, &before[i]);
  }
  input_ended_ns = input_has_hung_up() ? steady_ns() - kJustEndedNs : 0;
  action.sa_sigaction = &remember_closing;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigaction(SIGCONT, &action, &before_continuing);
}

void StopSignals::speak_as(Voice voice) { speaks = voice == Voice::speaks ? 1 : 0; }

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before[i], nullptr);
  sigaction(SIGCONT, &before_continuing, nullptr);
}

bool StopSignals::asked() const {
  if (input_ended_ns.load(std::memory_order_relaxed) == 0 && input_has_hung_up())
    input_ended_ns.store(steady_ns(), std::memory_order_relaxed);
  return asked_to_stop != 0;
}

}  // namespace dtrain::comm
