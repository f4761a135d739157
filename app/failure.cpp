#include "failure.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iostream>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/outside.hpp"
#include "core/printable.hpp"
#include "core/wait_until.hpp"

namespace dtrain::app {
namespace {

constexpr double kPatience_s = 3.0;          ///< For ranks that fail too, only a little later.
constexpr unsigned kLongestFinalise_s = 15;  ///< A finalisation that hangs must not leave ranks running.

constexpr const char* kLessMemory =
    "take a smaller model, a smaller --global-batch or more --micro-batches, or more ranks";
constexpr const char* kSeeDoctor =
    "run 'dtrain doctor'; if it finds nothing, report this with the command line";

/// What one rank says to the others at its end.
struct LastWords {
  int code = 0;
  std::array<char, 1020> text = {};
};

bool is_lost_rank(const LastWords& words) { return words.code == static_cast<int>(ExitCode::lost_rank); }

bool wait_a_little(MPI_Request& request) {
  int done = 0;
  wait_until(steady_s() + kPatience_s, std::chrono::milliseconds(1), [&request, &done] {
    const bool failed = MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    if (failed) done = 0;
    return failed || done != 0;
  });
  return done != 0;
}

/// Everybody's last words; empty when not all ranks came to say theirs.
std::vector<LastWords> exchange(const LastWords& mine, const comm::Communicator& errors) {
  std::vector<LastWords> all(static_cast<std::size_t>(errors.size()));
  constexpr int kBytes = static_cast<int>(sizeof(LastWords));
  MPI_Request request = MPI_REQUEST_NULL;
  const int rc =
      MPI_Iallgather(&mine, kBytes, MPI_BYTE, all.data(), kBytes, MPI_BYTE, errors.handle(), &request);
  if (rc != MPI_SUCCESS || !wait_a_little(request)) return {};
  return all;
}

/// Whether all that this rank tells of is another's failure, which that one tells of itself.
bool is_echo(const LastWords& words, const std::vector<LastWords>& all) {
  return is_lost_rank(words) && !std::ranges::all_of(all, is_lost_rank);
}

void print_once(const std::vector<LastWords>& all) {
  std::set<std::string> printed;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::string text = all[rank].text.data();
    if (is_echo(all[rank], all) || !printed.insert(text).second) continue;
    const bool alike =
        std::all_of(all.begin(), all.end(), [&](const auto& other) { return text == other.text.data(); });
    std::cerr << (alike ? "dtrain: " : fmt::format("dtrain: rank {}: ", rank)) << text << std::endl;
  }
}

/// Of an error of LibTorch's the sentence without the calls that led there, and where a device has no room
/// for a tensor, the remedy.
std::string words_of(const c10::Error& error) {
  const std::string sentence = error.what_without_backtrace();
  const std::string line = sentence.substr(0, sentence.find('\n'));
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) == nullptr) return printable(line);
  return Error(line,
               {.subject = "--device",
                .advice =
                    "take a smaller --global-batch, more --micro-batches, --recompute full or more ranks"})
      .what();
}

}  // namespace

ExitCode exit_code(const std::exception& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  return own == nullptr ? ExitCode::failure : own->code();
}

Error as_error(const std::exception& error, ExitCode code) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return *own;
  if (const auto* library = dynamic_cast<const c10::Error*>(&error))
    return {words_of(*library), {.subject = "LibTorch", .advice = kSeeDoctor, .code = code}};
  const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                      dynamic_cast<const std::length_error*>(&error) != nullptr;
  return {problem_of(error),
          {.subject = "dtrain", .advice = memory ? kLessMemory : kSeeDoctor, .code = code}};
}

int settle_failure(const std::exception& error, const comm::Communicator& errors, comm::MpiEnvironment& mpi) {
  LastWords mine;
  mine.code = static_cast<int>(exit_code(error));
  std::strncpy(mine.text.data(), as_error(error).what(), mine.text.size() - 1);
  // Where a rank has died no ranks may meet once more; where that ends all of them, it may have failed only.
  // MPI_Abort after an earlier loss lets the launcher end with 0, or never.
  const bool leaves = (is_lost_rank(mine) || mpi.has_lost_ranks()) && mpi.can_recover();
  if (leaves) mpi.exit_without_finalising(mine.code, mine.text.data());
  const auto all = exchange(mine, errors);
  if (all.empty()) {
    std::cerr << "dtrain: rank " << mpi.first_rank() << ": " << mine.text.data() << std::endl;
    mpi.abort(mine.code);
  }
  if (errors.rank() == 0) print_once(all);
  alarm(kLongestFinalise_s);
  errors.barrier();  // no rank ends before the sentence is out: mpirun would kill the one that prints
  int code = 0;
  for (const LastWords& words : all) code = is_echo(words, all) ? code : std::max(code, words.code);
  return code;
}

}  // namespace dtrain::app
