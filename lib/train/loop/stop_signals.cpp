#include "train/loop/stop_signals.hpp"

#include <unistd.h>

#include <array>
#include <csignal>
#include <string_view>

namespace dtrain::train {
namespace {

constexpr std::array kSignals = {SIGUSR1, SIGTERM, SIGINT};
volatile std::sig_atomic_t asked_to_stop = 0;
std::array<struct sigaction, kSignals.size()> before;

void remember(int signal) {
  asked_to_stop = 1;
  if (signal != SIGINT) return;
  constexpr std::string_view kSaid =
      "\ndtrain: stops after this step and writes a checkpoint; once more: ends at once\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kSaid.data(), kSaid.size());
}

}  // namespace

StopSignals::StopSignals() {
  asked_to_stop = 0;
  struct sigaction action = {};
  action.sa_handler = &remember;
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
