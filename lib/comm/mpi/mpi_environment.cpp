#include "comm/mpi/mpi_environment.hpp"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "comm/mpi/communicator.hpp"
#include "comm/mpi/mpi_check.hpp"
#include "comm/mpi/ulfm.hpp"
#include "comm/watch/deadline.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"

namespace dtrain::comm {

/// What a rank says at its end, itself or through another: two threads may want to.
class OwnWords {
 public:
  OwnWords(int first_rank, std::string_view words) : first_rank_(first_rank), words_(words) {}
  /// For another rank to say; empty where they are said or taken.
  std::string take() {
    State expected = State::unsaid;
    return state_.compare_exchange_strong(expected, State::taken) ? words_ : std::string();
  }
  void are_said() { state_ = State::said; }
  /// Unless they were taken.
  void say() {
    State expected = State::unsaid;
    if (state_.compare_exchange_strong(expected, State::said)) print();
  }
  void say_at_last() {
    if (state_.exchange(State::said) != State::said) print();
  }

 private:
  enum class State { unsaid, taken, said };

  void print() const {
    if (!words_.empty()) std::cerr << "dtrain: rank " << first_rank_ << ": " << words_ << std::endl;
  }

  int first_rank_;
  std::string words_;
  std::atomic<State> state_ = State::unsaid;
};

namespace {

// A machine with more ranks than cores tells MPI late of what is known already.
constexpr double kMostNoticeS = 5.0;
constexpr int kShrinks = 3;  // where ranks die meanwhile
constexpr std::chrono::seconds kAbortS{5};
constexpr std::chrono::seconds kMeetS{5};
constexpr std::chrono::seconds kComeS{30};  // from their steps, which may be long
constexpr std::chrono::seconds kSayS{2};    // if the others have not come: the launcher may end this rank
constexpr auto kReadByLauncher = std::chrono::milliseconds(100);
constexpr auto kSpareLooks = std::chrono::milliseconds(10);
constexpr int kDismissal = 1;  // tag

struct SentDismissal {
  int exit_code = 0;
  std::array<char, 1020> why{};
};

SentDismissal dismissal(int exit_code, std::string_view why) {
  SentDismissal message{.exit_code = exit_code};
  why.copy(message.why.data(), message.why.size() - 1);
  return message;
}

bool is_lost_rank(int exit_code) { return exit_code == static_cast<int>(ExitCode::lost_rank); }

/// An error of the rank's own, not what it has seen of a loss.
bool is_own_error(int exit_code) {
  return exit_code != 0 && exit_code != static_cast<int>(ExitCode::stopped) && !is_lost_rank(exit_code);
}

/// Each different sentence once, without those that only tell of another rank's error. `first_ranks`: of
/// those that say `all`.
void print_once(const std::vector<SentDismissal>& all, const std::vector<int>& first_ranks) {
  const bool has_cause =
      std::ranges::any_of(all, [](const auto& words) { return is_own_error(words.exit_code); });
  std::set<std::string> printed;
  for (std::size_t place = 0; place < all.size(); ++place) {
    const std::string text = all[place].why.data();
    if (text.empty() || (has_cause && is_lost_rank(all[place].exit_code)) || !printed.insert(text).second)
      continue;
    const bool alike = std::ranges::all_of(all, [&](const auto& words) { return text == words.why.data(); });
    std::cerr << "dtrain: " << (alike ? "" : "rank " + std::to_string(first_ranks[place]) + ": ") << text
              << std::endl;
  }
}

/// Open MPI's shared memory lends each process 512 fragments for short messages. Those that a dead rank had
/// not read yet never come back: once all are gone the process sends nothing to any rank of its node. Without
/// a limit they are as many as fit into 16 MiB.
void lift_limit_of_lent_fragments() { ::setenv("OMPI_MCA_btl_sm_free_list_max", "-1", 0); }

/// Open MPI 5 writes the pieces of long messages over TCP as "put": where the connection of one breaks, it
/// sends news of that on the same connection, whose lock it holds, and never comes back. As plain pieces it
/// does not.
void send_plain_pieces_over_tcp() {
  ::setenv("OMPI_MCA_btl_tcp_flags", "send,inplace,need-ack,need-csum,hetero-rdma", 0);
}

/// Open MPI's collectives by node ("han") make communicators of their own in each communicator of several
/// nodes, and the process crashes where a death is heard of while one is made.
void make_no_communicators_by_node() { ::setenv("OMPI_MCA_coll", "^han,hcoll,portals4", 0); }

/// Whatever happens meanwhile. `words`: said before that, early if the others do not come; null: none.
void exit_in(std::chrono::seconds time, int exit_code, std::shared_ptr<OwnWords> words = nullptr) {
  std::thread([time, exit_code, words = std::move(words)] {
    const auto alone = std::min(words != nullptr ? kSayS : time, time);
    std::this_thread::sleep_for(alone);
    if (words != nullptr) words->say();
    std::this_thread::sleep_for(time - alone);
    if (words != nullptr) words->say_at_last();
    std::this_thread::sleep_for(kReadByLauncher);
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
  if (recovery == Recovery::on) {
    lift_limit_of_lent_fragments();
    if (std::getenv("OMPI_MCA_mpi_ft_enable") != nullptr) {  // as mpirun --with-ft ulfm sets it
      send_plain_pieces_over_tcp();
      make_no_communicators_by_node();
    }
  }
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
  const auto message = dismissal(exit_code, why);
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
  const auto leaving = std::ranges::find_if(members, [](const Member& member) { return member.leaves != 0; });
  if (leaving != members.end()) {
    throw Error("rank " + std::to_string(leaving->first_rank) + " has ended",
                {.subject = "the meeting after a loss",
                 .advice = "see its message",
                 .code = is_own_error(leaving->exit_code) ? static_cast<ExitCode>(leaving->exit_code)
                                                          : ExitCode::lost_rank});
  }
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

/// The last meeting. Where not all that are left come to leave, the others have come to leave_lost_behind(),
/// and learn there that this rank leaves: each says its own words.
void MpiEnvironment::part(OwnWords& words) {
  MPI_Comm left = MPI_COMM_NULL;
  if (ulfm::shrink(everyone_, &left) != MPI_SUCCESS) return;
  MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
  everyone_ = left;
  const auto members = gather_members();
  if (!std::ranges::all_of(members, [](const Member& member) { return member.leaves != 0; })) return;
  const auto mine = dismissal(me_.exit_code, words.take());
  std::vector<SentDismissal> all(members.size());
  if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, left) != MPI_SUCCESS)
    return;
  words.are_said();
  int place = 0;
  MPI_Comm_rank(left, &place);
  if (place == 0) {
    std::vector<int> first_ranks;
    for (const Member& member : members) first_ranks.push_back(member.first_rank);
    print_once(all, first_ranks);
  }
  MPI_Barrier(left);  // no rank ends before the sentences are out: the launcher would end the one that prints
}

void MpiEnvironment::exit_without_finalising(int exit_code, std::string_view words) noexcept {
  const auto own = std::make_shared<OwnWords>(first_rank(), words);
  if (!can_recover_) {
    own->say_at_last();
    abort(exit_code);
  }
  std::fflush(nullptr);
  std::cout.flush();
  me_.leaves = 1;
  me_.exit_code = exit_code;
  const bool calls = has_lost_ranks() && is_own_error(exit_code);
  exit_in(calls ? kComeS : kMeetS, exit_code,
          own);  // a survivor that hangs elsewhere must not keep the others
  if (calls) {   // the others would wait for this rank until it is gone, and go on without it
    Communicator::revoke_all();
    ulfm::revoke(everyone_);
    if (world_ != everyone_) ulfm::revoke(world_);
  }
  try {
    part(*own);
  } catch (const std::exception&) {  // another rank was lost meanwhile
  }
  own->say_at_last();
  if (exit_code != 0) std::this_thread::sleep_for(kReadByLauncher);
  ::_exit(exit_code);
}

}  // namespace dtrain::comm
