#include "comm/mpi/mpi_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <array>
#include <limits>
#include <string>

#include "comm/mpi/ulfm.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {

bool is_of_failed_process(int error_class) {
#ifdef MPI_ERR_PROC_FAILED  // Open MPI 5; older ones never return it
  return error_class == MPI_ERR_PROC_FAILED || error_class == MPI_ERR_PROC_FAILED_PENDING ||
         error_class == MPI_ERR_REVOKED;
#else
  return error_class < 0;  // never
#endif
}

Error lost(std::string_view problem, std::string_view call) {
  return {problem,
          {.subject = std::string(call),
           .advice = "look at the lost rank's own output; the same command goes on from the newest "
                     "checkpoint, if there is one",
           .code = ExitCode::lost_rank}};
}

std::string text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

bool says_process_failed(int code) {
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  return is_of_failed_process(error_class);
}

}  // namespace

void check_mpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  if (says_process_failed(code)) throw lost(text_of(code), call);
  throw LibraryError(text_of(code), {.subject = std::string(call),
                                     .advice = "check that all ranks run the same program with the same "
                                               "options"});
}

void check_mpi(int code, std::string_view call, MPI_Comm comm) {
  if (code == MPI_SUCCESS) return;
  if (!says_process_failed(code)) check_losses(comm, call);
  check_mpi(code, call);
}

void check_losses(MPI_Comm comm, std::string_view call, double within_s) {
  if (!ulfm::available() || !ulfm::learns_of_loss(comm, within_s)) return;
  const auto gone = ulfm::gone(comm);
  throw lost(gone.empty()
                 ? "another rank has ended the communication"
                 : fmt::format("{} {} gone", numbered("rank", gone), gone.size() == 1 ? "is" : "are"),
             call);
}

int checked_int(std::size_t count, std::string_view what) {
  require(count <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
          "more elements than MPI can count", {.subject = std::string(what), .advice = "split the buffer"});
  return static_cast<int>(count);
}

}  // namespace dtrain::comm
