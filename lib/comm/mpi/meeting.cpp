#include "comm/mpi/meeting.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/collectives/message_steps.hpp"
#include "comm/mpi/mpi_check.hpp"
#include "comm/mpi/transfer.hpp"
#include "comm/mpi/ulfm.hpp"
#include "comm/watch/waiting.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

// Above those of groups' collectives; MPI promises tags up to 32767.
constexpr int kTreeTag = 32'100;
constexpr int kMeetingRollCallTag = 32'101;
constexpr int kArrivalTag = 32'102;
constexpr int kVerdictTag = 32'103;
constexpr int kQuestionTag = 32'104;
constexpr int kPresenceTag = 32'105;

constexpr double kGraceS = 5.0;      // for rank 0's answer, or its verdict, to come before the others' own
constexpr double kRollCallS = 2.0;   // for those that have come to answer rank 0
constexpr double kLastWordsS = 0.5;  // for a verdict to leave

struct Arrival {
  std::array<char, 32> what{};
};

enum class Verdict : std::int32_t { missing, mismatched };

struct Answer {
  Verdict verdict = Verdict::missing;
  std::int32_t text_bytes = 0;
};

template <typename T>
Transfer send_value(const Channel& channel, const T& value, int to) {
  return Transfer::send(channel, &value, sizeof value, to);
}

Arrival arrival(std::string_view what) {
  Arrival mine;
  what.copy(mine.what.data(), mine.what.size() - 1);
  return mine;
}

std::string ranks_in_words(MPI_Comm comm, const std::vector<int>& ranks) {
  std::vector<int> names;
  for (const int rank : ranks) names.push_back(ulfm::first_rank_of(comm, rank));
  return numbered("rank", names);
}

/// Of the ranks that have come, what rank 0 finds; thrown by all of them.
[[noreturn]] void throw_verdict(Verdict verdict, std::string_view what, std::string_view text) {
  if (verdict == Verdict::mismatched) {
    throw Error(text, {.subject = std::string(what), .advice = "make the same calls on all ranks"});
  }
  throw Error(text, {.subject = std::string(what),
                     .advice = "look at what it does, or raise --watchdog",
                     .code = ExitCode::lost_rank});
}

std::string late_in_words(const std::string& ranks, bool several, double limit_s) {
  return fmt::format("{} {} not arrived within {} s", ranks, several ? "have" : "has", limit_s);
}

/// The same on all ranks of a build: FNV-1a.
std::int64_t fingerprint(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return static_cast<std::int64_t>(hash >> 1);
}

/// Up and down a tree whose root is rank 0, so that no rank goes on before all have come, and none once rank
/// 0 has given up. The largest fingerprint and the smallest, negated, come along.
class Gathering {
 public:
  Gathering(MPI_Comm comm, int rank, int size, std::string_view what)
      : values_(std::make_shared<Values>(Values{fingerprint(what), -fingerprint(what)})) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    Buffer buffer = Buffer::of(std::span<std::int64_t>(*values_));
    buffer.owner = values_;
    tree_ = make_tree_all_reduce({.channel = {comm, kTreeTag}, .ranks = std::move(ranks), .index = rank},
                                 buffer, ReduceOp::max);
  }

  bool complete() { return tree_->advance(); }
  /// Whether all ranks have come to the same call.
  bool agrees() const { return (*values_)[0] == -(*values_)[1]; }

 private:
  using Values = std::array<std::int64_t, 2>;
  std::shared_ptr<Values> values_;
  std::unique_ptr<Step> tree_;
};

/// Rank 0, which finds out where the others are when they have not all come, or to different calls.
class Host {
 public:
  Host(MPI_Comm comm, int size, std::string_view what, double limit_s, double pause_s)
      : comm_(comm), what_(what), limit_s_(limit_s), pause_s_(pause_s), losses_(comm, what) {
    for (int rank = 1; rank < size; ++rank) guests_.push_back({.rank = rank});
  }

  void await_all(Gathering& gathering) {
    Waiting waiting(limit_s_, pause_s_);
    while (!gathering.complete()) {
      losses_.look();
      answer_questions();
      if (!waiting.pause()) call_the_roll();
    }
    if (!gathering.agrees()) call_the_roll();
  }

 private:
  struct Guest {
    int rank = 0;
    std::shared_ptr<Arrival> arrival = std::make_shared<Arrival>();
    Transfer receive = {};
    bool has_come = false;
  };

  /// To ranks that have waited for long: this one is there, and waits for others itself.
  void answer_questions() {
    int is_asked = 0;
    MPI_Status status;
    while (
        check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kQuestionTag, comm_, &is_asked, &status), "MPI_Iprobe", comm_),
        is_asked != 0) {
      std::int32_t question = 0;
      Transfer arriving =
          Transfer::receive({comm_, kQuestionTag}, &question, sizeof question, status.MPI_SOURCE);
      while (!arriving.test()) losses_.look();
      sends_.push_back(send_value({comm_, kPresenceTag}, question, status.MPI_SOURCE));
    }
  }

  [[noreturn]] void call_the_roll() {
    for (Guest& guest : guests_) {
      guest.receive = Transfer::receive({comm_, kArrivalTag}, guest.arrival.get(), sizeof(Arrival),
                                        guest.rank, guest.arrival);
      sends_.push_back(send_value({comm_, kMeetingRollCallTag}, std::int32_t{0}, guest.rank));
    }
    Waiting waiting(kRollCallS, pause_s_);
    while (!all_have_come() && waiting.pause()) losses_.look();
    const auto other = std::ranges::find_if(guests_, [&](const Guest& guest) {
      return guest.has_come && guest.arrival->what != arrival(what_).what;
    });
    if (other != guests_.end()) {
      end(Verdict::mismatched,
          fmt::format("{} calls {} where rank {} calls {}", ranks_in_words(comm_, {other->rank}),
                      other->arrival->what.data(), ulfm::first_rank_of(comm_, 0), what_));
    }
    std::vector<int> missing;
    for (const Guest& guest : guests_) {
      if (!guest.has_come) missing.push_back(guest.rank);
    }
    end(Verdict::missing, missing.empty()
                              ? fmt::format("the last rank has come after more than {} s", limit_s_)
                              : late_in_words(ranks_in_words(comm_, missing), missing.size() > 1, limit_s_));
  }

  bool all_have_come() {
    for (Guest& guest : guests_) guest.has_come = guest.has_come || guest.receive.test();
    return std::ranges::all_of(guests_, &Guest::has_come);
  }

  [[noreturn]] void end(Verdict verdict, const std::string& text) {
    for (const Guest& guest : guests_) {
      if (!guest.has_come) continue;
      const Channel channel = {comm_, kVerdictTag};
      sends_.push_back(send_value(
          channel, Answer{.verdict = verdict, .text_bytes = static_cast<std::int32_t>(text.size())},
          guest.rank));
      sends_.push_back(Transfer::send(channel, text.data(), text.size(), guest.rank));
    }
    Waiting waiting(kLastWordsS);  // small messages leave at once, unless a rank takes none any more
    while (std::erase_if(sends_, [](Transfer& send) { return send.test(); }),
           !sends_.empty() && waiting.pause()) {
    }
    throw_verdict(verdict, what_, text);
  }

  MPI_Comm comm_;
  std::string_view what_;
  double limit_s_;
  double pause_s_;
  LossWatch losses_;
  std::vector<Guest> guests_;
  std::vector<Transfer> sends_;
};

/// Every other rank, which learns from rank 0 where the others are.
class Caller {
 public:
  Caller(MPI_Comm comm, int rank, std::string_view what, double limit_s, double pause_s)
      : comm_(comm),
        rank_(rank),
        what_(what),
        limit_s_(limit_s),
        waiting_(limit_s > 0 ? 2 * limit_s + kGraceS : 0, pause_s),
        losses_(comm, what) {}

  void await_all(Gathering& gathering) {
    while (!gathering.complete()) {
      if (roll_is_called()) answer();
      if (limit_s_ > 0 && waiting_.waited_s() > limit_s_) look_for_host();
      pause();
    }
    if (gathering.agrees()) return;
    while (!roll_is_called()) pause();
    answer();
  }

 private:
  /// Rank 0 may have come a limit later than this rank, and wait for another one: it is asked whether it has.
  /// Only one that does not answer is missing.
  void look_for_host() {
    if (!asked_) {
      asked_ = true;
      presence_ = Transfer::receive({comm_, kPresenceTag}, &answered_, sizeof answered_, 0);
      question_ = send_value({comm_, kQuestionTag}, std::int32_t{1}, 0);
    }
    question_.test();
    host_is_there_ = host_is_there_ || presence_.test();
    if (!host_is_there_ && waiting_.waited_s() > limit_s_ + kGraceS) give_up();
  }

  bool roll_is_called() const {
    int is_called = 0;
    check_mpi(MPI_Iprobe(0, kMeetingRollCallTag, comm_, &is_called, MPI_STATUS_IGNORE), "MPI_Iprobe", comm_);
    return is_called != 0;
  }

  [[noreturn]] void answer() {
    std::int32_t call = 0;
    receive(kMeetingRollCallTag, &call, sizeof call);
    Transfer here = send_value({comm_, kArrivalTag}, arrival(what_), 0);
    while (!here.test()) pause();
    Answer verdict;
    receive(kVerdictTag, &verdict, sizeof verdict);
    std::string text(static_cast<std::size_t>(verdict.text_bytes), '\0');
    receive(kVerdictTag, text.data(), text.size());
    throw_verdict(verdict.verdict, what_, text);
  }

  void receive(int tag, void* data, std::size_t bytes) {
    Transfer arriving = Transfer::receive({comm_, tag}, data, bytes, 0);
    while (!arriving.test()) pause();
  }

  void pause() {
    losses_.look();
    if (!waiting_.pause()) give_up();
  }

  /// What rank 0 says comes down the tree: another rank may keep it back.
  [[noreturn]] void give_up() const {
    std::string text = late_in_words(ranks_in_words(comm_, {0}), false, limit_s_);
    const int parent = rank_ & (rank_ - 1);
    if (parent != 0) {
      text +=
          fmt::format(", or {}, from which this one learns of that, hangs", ranks_in_words(comm_, {parent}));
    }
    throw_verdict(Verdict::missing, what_, text);
  }

  MPI_Comm comm_;
  int rank_;
  std::string_view what_;
  double limit_s_;
  Waiting waiting_;
  LossWatch losses_;
  bool asked_ = false;
  bool host_is_there_ = false;
  std::int32_t answered_ = 0;
  Transfer question_;
  Transfer presence_;
};

}  // namespace

void meet(MPI_Comm comm, std::string_view what, double limit_s, double pause_s) {
  int rank = 0;
  int size = 1;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  if (size == 1) return;
  Gathering gathering(comm, rank, size, what);
  if (rank == 0) {
    Host(comm, size, what, limit_s, pause_s).await_all(gathering);
  } else {
    Caller(comm, rank, what, limit_s, pause_s).await_all(gathering);
  }
}

}  // namespace dtrain::comm
