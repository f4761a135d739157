#include "own_process.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace dtrain::app {
namespace {

bool is_fault(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL || signal == SIGABRT;
}

[[noreturn]] void work_and_leave(pid_t caller, const std::function<int()>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != caller) std::_Exit(1);  // it has ended already
  std::_Exit(after_output(work()));
}

}  // namespace

int in_own_process(const ErrorContext& damaged, const std::function<int()>& work) {
  std::cout.flush();
  std::fflush(nullptr);
  const pid_t caller = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return work();
  if (child == 0) work_and_leave(caller, work);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int signal = WTERMSIG(status);
  if (is_fault(signal))
    throw Error(fmt::format("has ended the library that reads it, by signal {}", signal), damaged);
  std::signal(signal, SIG_DFL);
  ::raise(signal);
  return 128 + signal;  // a signal that is blocked or does not end a process
}

int after_output(int code) {
  std::cout.flush();
  const bool written = std::fflush(nullptr) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  struct stat facts = {};
  const bool to_file = ::fstat(STDOUT_FILENO, &facts) == 0 &&
                       (S_ISREG(facts.st_mode) || (S_ISCHR(facts.st_mode) && ::isatty(STDOUT_FILENO) == 0));
  if (written || !to_file) return code;  // of a pipe the reader may have enough, a terminal may be gone
  std::cerr << "dtrain: standard output: cannot be written; check the space where it leads" << std::endl;
  return code == 0 ? static_cast<int>(ExitCode::failure) : code;
}

}  // namespace dtrain::app
