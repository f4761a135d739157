#include "comm/mpi/mpi_environment.hpp"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <thread>

#include "comm/mpi/communicator.hpp"
#include "comm/mpi/mpi_check.hpp"
#include "comm/mpi/ulfm.hpp"
#include "comm/watch/deadline.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

// A machine with more ranks than cores tells MPI late of what is known already.
constexpr double kMostNoticeS = 5.0;
constexpr int kShrinks = 3;  // where ranks die meanwhile
constexpr std::chrono::seconds kAbortS{5};
constexpr std::chrono::seconds kMeetS{5};
constexpr auto kReadByLauncher = std::chrono::milliseconds(100);
constexpr auto kSpareLooks = std::chrono::milliseconds(10);
constexpr int kDismissal = 1;  // tag

struct SentDismissal {
  int exit_code = 0;
  std::array<char, 1020> why{};
};

/// Open MPI's shared memory lends each process 512 fragments for short messages. Those that a dead rank had
/// not read yet never come back: once all are gone the process sends nothing to any rank of its node. Without
/// a limit they are as many as fit into 16 MiB.
void lift_limit_of_lent_fragments() { ::setenv("OMPI_MCA_btl_sm_free_list_max", "-1", 0); }

/// Whatever happens meanwhile.
void exit_in(std::chrono::seconds time, int exit_code) {
  std::thread([time, exit_code] {
    std::this_thread::sleep_for(time);
    ::_exit(exit_code);
  }).detach();
}

/// Open MPI removes the files of its shared memory when it is finalised: killed ranks would leave them for
/// ever. Their names are not needed once all ranks of the node have mapped them, which each pair does with
/// its first message.
void unname_shared_memory() {
  const auto world = Communicator::duplicate(MPI_COMM_WORLD);
  const auto node = world.split_by_shared_memory();
  std::vector<int> from(static_cast<std::size_t>(node.size()), 0);
  auto to = from;
  check_mpi(MPI_Alltoall(from.data(), 1, MPI_INT, to.data(), 1, MPI_INT, node.handle()), "MPI_Alltoall");
  node.barrier();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find("/dev/shm/sm_segment.");
    if (path != std::string::npos && !line.ends_with(" (deleted)")) ::unlink(line.c_str() + path);
  }
}

}  // namespace

MpiEnvironment::MpiEnvironment(int& argc, char**& argv, Recovery recovery, double limit_s)
    : exceptions_(std::uncaught_exceptions()), limit_s_(limit_s) {
  // What Open MPI sends by TCP to a rank that was just killed raises it, and would take this rank along.
  std::signal(SIGPIPE, SIG_IGN);
  if (recovery == Recovery::on) lift_limit_of_lent_fragments();
  const Deadline deadline(limit_s, "the start of MPI");
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  require(provided >= MPI_THREAD_MULTIPLE, "this MPI library allows only one thread to communicate",
          {.subject = library_version(), .advice = "use one built with MPI_THREAD_MULTIPLE"});
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  me_.first_rank = rank_;
  first_size_ = size_;
  for (int rank = 0; rank < size_; ++rank) members_.push_back({.first_rank = rank});
  can_recover_ = recovery == Recovery::on && ulfm::available();
  unname_shared_memory();
}

MpiEnvironment::~MpiEnvironment() {
  if (std::uncaught_exceptions() > exceptions_) return;
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised != 0) return;
  const Deadline deadline(limit_s_, "the end of MPI");
  MPI_Finalize();
}

void MpiEnvironment::keep_spares(int count) {
  const Deadline deadline(limit_s_, "setting ranks aside as spares");
  auto members = members_;
  for (auto member = members.end() - count; member != members.end(); ++member) member->spare = 1;
  split_world(members);
}

/// The communicator of those of `members` that are what this rank is: at work, or spare.
void MpiEnvironment::split_world(const std::vector<Member>& members) {
  int place = 0;
  MPI_Comm_rank(everyone_, &place);
  const int spare = members[static_cast<std::size_t>(place)].spare;
  check_mpi(MPI_Comm_split(everyone_, spare, place, &world_), "MPI_Comm_split", everyone_);
  MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(world_, &rank_);
  size_ = static_cast<int>(std::ranges::count(members, 0, &Member::spare));
  me_.spare = spare;
  members_ = members;
}

std::optional<Dismissal> MpiEnvironment::wait_for_call() const {
  while (true) {
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kDismissal, everyone_, &there, &status) == MPI_SUCCESS && there != 0) {
      SentDismissal message;
      MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, kDismissal, everyone_,
               MPI_STATUS_IGNORE);
      return Dismissal{message.exit_code, message.why.data()};
    }
    int revoked = 0;
    if (ulfm::is_revoked(everyone_, &revoked) == MPI_SUCCESS && revoked != 0) return std::nullopt;
    const auto gone = ulfm::gone(everyone_);
    const bool all_gone = std::ranges::all_of(members_, [&gone](const Member& member) {
      return member.spare != 0 || std::ranges::find(gone, member.first_rank) != gone.end();
    });
    if (all_gone) {  // no rank is left to call
      return Dismissal{static_cast<int>(ExitCode::lost_rank), "all ranks that worked are gone"};
    }
    std::this_thread::sleep_for(kSpareLooks);
  }
}

void MpiEnvironment::dismiss_spares(int exit_code, std::string_view why) const noexcept {
  SentDismissal message{.exit_code = exit_code};
  why.copy(message.why.data(), message.why.size() - 1);
  for (std::size_t place = 0; place < members_.size(); ++place) {
    if (members_[place].spare == 0) continue;
    MPI_Send(&message, sizeof message, MPI_BYTE, static_cast<int>(place), kDismissal, everyone_);
  }
}

Loss MpiEnvironment::leave_lost_behind(bool holds_state, double limit_s) {
  if (!can_recover_ || !ulfm::learns_of_loss(everyone_, kMostNoticeS)) return {};
  const Deadline deadline(limit_s, "agreeing on the ranks that are left");
  Communicator::revoke_all();
  ulfm::revoke(everyone_);
  if (world_ != everyone_) ulfm::revoke(world_);
  MPI_Comm left = MPI_COMM_NULL;
  int code = ulfm::shrink(everyone_, &left);
  for (int again = 0; code != MPI_SUCCESS && again < kShrinks; ++again) code = ulfm::shrink(everyone_, &left);
  check_mpi(code, "MPIX_Comm_shrink");
  MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
  everyone_ = left;
  me_.holds_state = holds_state ? 1 : 0;
  const auto before = members_;
  const auto members = gather_members();
  split_world(members);
  Loss loss{.gone = {}, .all_hold_state = std::ranges::all_of(members, [](const Member& member) {
                          return member.spare != 0 || member.holds_state != 0;
                        })};
  for (const Member& member : before) {
    if (std::ranges::find(members, member.first_rank, &Member::first_rank) == members.end())
      loss.gone.push_back(member.first_rank);
  }
  return loss;
}

std::vector<MpiEnvironment::Member> MpiEnvironment::gather_members() const {
  int count = 0;
  MPI_Comm_size(everyone_, &count);
  std::vector<Member> members(static_cast<std::size_t>(count));
  check_mpi(MPI_Allgather(&me_, sizeof me_, MPI_BYTE, members.data(), sizeof me_, MPI_BYTE, everyone_),
            "MPI_Allgather", everyone_);
  return members;
}

void MpiEnvironment::call_spares(int wanted, double limit_s) {
  const Deadline deadline(limit_s, "calling spare ranks");
  auto members = members_;
  int missing = wanted - size_;
  for (Member& member : members) {
    if (member.spare == 0 || missing <= 0) continue;
    member.spare = 0;
    --missing;
  }
  if (missing < wanted - size_) split_world(members);
}

std::string MpiEnvironment::library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::string version(text.data(), static_cast<std::size_t>(length));
  return version.substr(0, version.find('\0'));
}

/// MPI_Abort waits for the launcher, which may wait for a node that cannot be reached.
void MpiEnvironment::abort(int exit_code) noexcept {
  std::fflush(nullptr);
  std::cout.flush();
  exit_in(kAbortS, exit_code);
  MPI_Abort(MPI_COMM_WORLD, exit_code);
  ::_exit(exit_code);
}

void MpiEnvironment::exit_without_finalising(int exit_code) noexcept {
  if (!can_recover_) abort(exit_code);
  std::fflush(nullptr);
  std::cout.flush();
  exit_in(kMeetS, exit_code);  // a survivor that hangs elsewhere must not keep the others
  MPI_Comm survivors = MPI_COMM_NULL;
  if (ulfm::shrink(everyone_, &survivors) == MPI_SUCCESS) MPI_Barrier(survivors);
  if (exit_code != 0) std::this_thread::sleep_for(kReadByLauncher);
  ::_exit(exit_code);
}

}  // namespace dtrain::comm
