#include "comm/mpi_environment.hpp"

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <thread>

#include "comm/mpi_check.hpp"
#include "core/error.hpp"

namespace dtrain::comm {

MpiEnvironment::MpiEnvironment(int& argc, char**& argv, Recovery recovery)
    : exceptions_(std::uncaught_exceptions()) {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  require(provided >= MPI_THREAD_MULTIPLE, "this MPI library allows only one thread to communicate",
          {.subject = library_version(), .advice = "use one built with MPI_THREAD_MULTIPLE"});
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  // Debian's Open MPI 4.1 has the same soname and no ULFM, hence the look-up at run time.
  can_recover_ = recovery == Recovery::on && dlsym(RTLD_DEFAULT, "MPIX_Comm_shrink") != nullptr;
}

MpiEnvironment::~MpiEnvironment() {
  if (std::uncaught_exceptions() > exceptions_) return;
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised == 0) MPI_Finalize();
}

std::string MpiEnvironment::library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::string version(text.data(), static_cast<std::size_t>(length));
  return version.substr(0, version.find('\0'));
}

void MpiEnvironment::abort(int exit_code) noexcept {
  std::fflush(nullptr);
  std::cout.flush();
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  ::_exit(exit_code);
}

void MpiEnvironment::exit_after_lost_rank(int exit_code) noexcept {
  if (!can_recover_) abort(exit_code);
  std::fflush(nullptr);
  std::cout.flush();
  // A survivor that hangs elsewhere must not keep the others.
  std::thread([exit_code] {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    ::_exit(exit_code);
  }).detach();
  using Shrink = int (*)(MPI_Comm, MPI_Comm*);
  const auto shrink = reinterpret_cast<Shrink>(dlsym(RTLD_DEFAULT, "MPIX_Comm_shrink"));
  MPI_Comm survivors = MPI_COMM_NULL;
  if (shrink(MPI_COMM_WORLD, &survivors) == MPI_SUCCESS) MPI_Barrier(survivors);
  ::_exit(exit_code);
}

}  // namespace dtrain::comm
