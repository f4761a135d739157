#include "train/stop_signals.hpp"

#include <array>
#include <csignal>

namespace dtrain::train {
namespace {

constexpr std::array kSignals = {SIGUSR1, SIGTERM};
volatile std::sig_atomic_t asked_to_stop = 0;
std::array<struct sigaction, kSignals.size()> before;

void remember(int /*signal*/) { asked_to_stop = 1; }

}  // namespace

StopSignals::StopSignals() {
  asked_to_stop = 0;
  struct sigaction action = {};
  action.sa_handler = &remember;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before[i]);
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before[i], nullptr);
}

bool StopSignals::asked() const { return asked_to_stop != 0; }

}  // namespace dtrain::train
