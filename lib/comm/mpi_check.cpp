#include "comm/mpi_check.hpp"

#include <mpi.h>

#include <array>
#include <limits>
#include <string>

#include "core/error.hpp"

namespace dtrain::comm {
namespace {

bool says_process_failed(int error_class) {
#ifdef MPI_ERR_PROC_FAILED  // Open MPI 5; older ones never return it
  return error_class == MPI_ERR_PROC_FAILED || error_class == MPI_ERR_PROC_FAILED_PENDING ||
         error_class == MPI_ERR_REVOKED;
#else
  return error_class < 0;  // never
#endif
}

}  // namespace

void check_mpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  const std::string problem(text.data(), static_cast<std::size_t>(length));
  if (says_process_failed(error_class)) {
    throw Error(
        problem,
        {.subject = std::string(call),
         .advice =
             "look at the lost rank's own output; the same command goes on from the newest checkpoint, if "
             "there is one",
         .code = ExitCode::lost_rank});
  }
  throw Error(problem, {.subject = std::string(call),
                        .advice = "check that all ranks run the same program with the same options"});
}

int checked_int(std::size_t count, std::string_view what) {
  require(count <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
          "more elements than MPI can count", {.subject = std::string(what), .advice = "split the buffer"});
  return static_cast<int>(count);
}

}  // namespace dtrain::comm
