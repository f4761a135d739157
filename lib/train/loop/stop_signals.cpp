#include "train/loop/stop_signals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace dtrain::train {
namespace {

constexpr std::array kSignals = {SIGUSR1, SIGTERM, SIGINT};
volatile std::sig_atomic_t asked_to_stop = 0;
volatile std::sig_atomic_t speaks = 0;
std::array<struct sigaction, kSignals.size()> before;

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

}  // namespace

StopSignals::StopSignals(Voice voice) {
  asked_to_stop = 0;
  speaks = voice == Voice::speaks ? 1 : 0;
  struct sigaction action = {};
  action.sa_handler = &remember;
  // mpirun's processes are not in the terminal's foreground: with `stty tostop` this would stop one that
  // writes.
  sigaddset(&action.sa_mask, SIGTTOU);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    action.sa_flags = kSignals[i] == SIGINT ? SA_RESTART | SA_RESETHAND : SA_RESTART;
    sigaction(kSignals[i], &action, &before[i]);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before[i], nullptr);
}

bool StopSignals::asked() const { return asked_to_stop != 0; }

}  // namespace dtrain::train
