#include "comm/mpi_environment.hpp"

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iostream>
#include <numeric>
#include <thread>

#include "comm/communicator.hpp"
#include "comm/mpi_check.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

constexpr double kNoticeS = 1.0;   // for MPI to see a death that others have seen
constexpr double kShrinkS = 10.0;  // for all that are left to come

}  // namespace

MpiEnvironment::MpiEnvironment(int& argc, char**& argv, Recovery recovery)
    : exceptions_(std::uncaught_exceptions()) {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  require(provided >= MPI_THREAD_MULTIPLE, "this MPI library allows only one thread to communicate",
          {.subject = library_version(), .advice = "use one built with MPI_THREAD_MULTIPLE"});
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  first_rank_ = rank_;
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  known_.resize(static_cast<std::size_t>(size_));
  std::iota(known_.begin(), known_.end(), 0);
  // Debian's Open MPI 4.1 has the same soname and no ULFM, hence the look-up at run time.
  can_recover_ = recovery == Recovery::on && dlsym(RTLD_DEFAULT, "MPIX_Comm_shrink") != nullptr;
}

MpiEnvironment::~MpiEnvironment() {
  if (std::uncaught_exceptions() > exceptions_) return;
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised == 0) MPI_Finalize();
}

// MPI sees a death a moment after the ranks of the node have; without the probe it reported nothing. Probing
// a communicator that another rank has revoked drives nothing; that it is revoked says enough.
bool MpiEnvironment::someone_is_gone() const {
  using GetFailed = int (*)(MPI_Comm, MPI_Group*);
  using IsRevoked = int (*)(MPI_Comm, int*);
  const auto get_failed = reinterpret_cast<GetFailed>(dlsym(RTLD_DEFAULT, "MPIX_Comm_get_failed"));
  const auto is_revoked = reinterpret_cast<IsRevoked>(dlsym(RTLD_DEFAULT, "MPIX_Comm_is_revoked"));
  const double end_s = steady_s() + kNoticeS;
  while (steady_s() < end_s) {
    int flag = 0;
    if (is_revoked(world_, &flag) == MPI_SUCCESS && flag != 0) return true;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_, &flag, MPI_STATUS_IGNORE);
    MPI_Group failed = MPI_GROUP_NULL;
    int count = 0;
    if (get_failed(world_, &failed) == MPI_SUCCESS) {
      MPI_Group_size(failed, &count);
      MPI_Group_free(&failed);
    }
    if (count > 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::vector<int> MpiEnvironment::leave_lost_behind() {
  if (!can_recover_ || !someone_is_gone()) return {};
  // Who waits for a rank that hangs would wait for ever.
  std::atomic<bool> done = false;
  std::thread guard([&done] {
    for (const double end_s = steady_s() + kShrinkS; !done && steady_s() < end_s;)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (!done) ::_exit(static_cast<int>(ExitCode::lost_rank));
  });
  Communicator::revoke_all();
  using Revoke = int (*)(MPI_Comm);
  using Shrink = int (*)(MPI_Comm, MPI_Comm*);
  reinterpret_cast<Revoke>(dlsym(RTLD_DEFAULT, "MPIX_Comm_revoke"))(world_);
  MPI_Comm left = MPI_COMM_NULL;
  const int shrunk = reinterpret_cast<Shrink>(dlsym(RTLD_DEFAULT, "MPIX_Comm_shrink"))(world_, &left);
  done = true;
  guard.join();
  check_mpi(shrunk, "MPIX_Comm_shrink");
  MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
  const int before = size_;
  world_ = left;
  MPI_Comm_rank(world_, &rank_);
  MPI_Comm_size(world_, &size_);
  std::vector<int> there(static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(&first_rank_, 1, MPI_INT, there.data(), 1, MPI_INT, world_), "MPI_Allgather");
  std::vector<int> gone;
  for (const int rank : known_) {
    if (std::ranges::find(there, rank) == there.end()) gone.push_back(rank);
  }
  require(static_cast<int>(gone.size()) == before - size_, "the ranks that are left do not add up",
          {.subject = "MPIX_Comm_shrink"});
  known_ = there;
  return gone;
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
  if (shrink(world_, &survivors) == MPI_SUCCESS) MPI_Barrier(survivors);
  ::_exit(exit_code);
}

}  // namespace dtrain::comm
