#include "comm/meeting.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/mpi_check.hpp"
#include "comm/transfer.hpp"
#include "comm/ulfm.hpp"
#include "comm/waiting.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

// Above those of groups' collectives; MPI promises tags up to 32767.
constexpr int kArrivalTag = 32'100;
constexpr int kAnswerTag = 32'101;

constexpr double kFirstWordS =
    0.5;                         // rank 0 tells those that have come that it is there, if it waits so long
constexpr double kGraceS = 5.0;  // for its verdict to come before theirs
constexpr double kLastWordsS = 0.5;  // for a verdict to leave

struct Arrival {
  std::array<char, 32> what{};
};

enum class Verdict : std::int32_t { all_are_here, i_am_here, missing, mismatched };

struct Answer {
  Verdict verdict = Verdict::all_are_here;
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
  return fmt::format("rank{} {}", names.size() == 1 ? "" : "s", fmt::join(names, ", "));
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

/// Rank 0: every other rank tells it that it has come.
class Host {
 public:
  Host(MPI_Comm comm, int size, std::string_view what, double limit_s, double pause_s)
      : comm_(comm),
        what_(what),
        limit_s_(limit_s),
        pause_s_(pause_s),
        losses_(comm, what),
        guests_(static_cast<std::size_t>(size - 1)) {
    for (std::size_t i = 0; i < guests_.size(); ++i) {
      Guest& guest = guests_[i];
      guest.rank = static_cast<int>(i) + 1;
      guest.receive =
          Transfer::receive({comm, kArrivalTag}, &guest.arrival, sizeof guest.arrival, guest.rank);
    }
  }

  void receive_all() {
    Waiting waiting(limit_s_, pause_s_);
    while (!all_have_come()) {
      if (!waiting.pause()) give_up();
      losses_.look();
      if (waiting.waited_s() > kFirstWordS) greet();
    }
    const auto other = std::ranges::find_if(
        guests_, [&](const Guest& guest) { return guest.arrival.what != arrival(what_).what; });
    if (other != guests_.end()) {
      end(Verdict::mismatched,
          fmt::format("{} calls {} where rank {} calls {}", ranks_in_words(comm_, {other->rank}),
                      other->arrival.what.data(), ulfm::first_rank_of(comm_, 0), what_));
    }
    for (const Guest& guest : guests_) tell(guest.rank, Verdict::all_are_here);
    flush(limit_s_);
  }

 private:
  struct Guest {
    int rank = 0;
    Arrival arrival;
    Transfer receive;
    bool has_come = false;
    bool greeted = false;
  };

  bool all_have_come() {
    for (Guest& guest : guests_) guest.has_come = guest.has_come || guest.receive.test();
    return std::ranges::all_of(guests_, &Guest::has_come);
  }

  void greet() {
    for (Guest& guest : guests_) {
      if (!guest.has_come || guest.greeted) continue;
      tell(guest.rank, Verdict::i_am_here);
      guest.greeted = true;
    }
  }

  [[noreturn]] void give_up() {
    std::vector<int> missing;
    for (const Guest& guest : guests_) {
      if (!guest.has_come) missing.push_back(guest.rank);
    }
    end(Verdict::missing, late_in_words(ranks_in_words(comm_, missing), missing.size() > 1, limit_s_));
  }

  [[noreturn]] void end(Verdict verdict, const std::string& text) {
    for (const Guest& guest : guests_) {
      if (guest.has_come) tell(guest.rank, verdict, text);
    }
    flush(kLastWordsS);
    throw_verdict(verdict, what_, text);
  }

  void tell(int rank, Verdict verdict, const std::string& text = {}) {
    const Channel channel = {comm_, kAnswerTag};
    sends_.push_back(send_value(
        channel, Answer{.verdict = verdict, .text_bytes = static_cast<std::int32_t>(text.size())}, rank));
    if (!text.empty()) sends_.push_back(Transfer::send(channel, text.data(), text.size(), rank));
  }

  /// Small messages leave at once, unless nothing takes them any more.
  void flush(double limit_s) {
    Waiting waiting(limit_s);
    while (std::erase_if(sends_, [](Transfer& send) { return send.test(); }), !sends_.empty()) {
      if (!waiting.pause()) return;
    }
  }

  MPI_Comm comm_;
  std::string_view what_;
  double limit_s_;
  double pause_s_;
  LossWatch losses_;
  std::vector<Guest> guests_;
  std::vector<Transfer> sends_;
};

/// Every other rank: learns from rank 0.
class Caller {
 public:
  Caller(MPI_Comm comm, std::string_view what, double limit_s, double pause_s)
      : comm_(comm),
        what_(what),
        limit_s_(limit_s),
        waiting_(limit_s > 0 ? limit_s + kGraceS : 0, pause_s),
        losses_(comm, what) {}

  void await_all() {
    Transfer here = send_value({comm_, kArrivalTag}, arrival(what_), 0);
    while (!here.test()) pause();
    while (true) {
      Answer answer;
      receive(&answer, sizeof answer);
      if (answer.verdict == Verdict::all_are_here) return;
      if (answer.verdict == Verdict::i_am_here) {
        host_is_here_ = true;
        waiting_.begin_again();
        continue;
      }
      std::string text(static_cast<std::size_t>(answer.text_bytes), '\0');
      receive(text.data(), text.size());
      throw_verdict(answer.verdict, what_, text);
    }
  }

 private:
  void receive(void* data, std::size_t bytes) {
    Transfer arriving = Transfer::receive({comm_, kAnswerTag}, data, bytes, 0);
    while (!arriving.test()) pause();
  }

  void pause() {
    losses_.look();
    if (waiting_.pause()) return;
    const std::string host = ranks_in_words(comm_, {0});
    throw_verdict(Verdict::missing, what_,
                  host_is_here_ ? fmt::format("{} does not answer any more", host)
                                : late_in_words(host, false, limit_s_));
  }

  MPI_Comm comm_;
  std::string_view what_;
  double limit_s_;
  Waiting waiting_;
  LossWatch losses_;
  bool host_is_here_ = false;
};

}  // namespace

void meet(MPI_Comm comm, std::string_view what, double limit_s, double pause_s) {
  int rank = 0;
  int size = 1;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  if (size == 1) return;
  if (rank == 0) {
    Host(comm, size, what, limit_s, pause_s).receive_all();
  } else {
    Caller(comm, what, limit_s, pause_s).await_all();
  }
}

}  // namespace dtrain::comm
