// The main of every test that runs on several ranks: all ranks fail if one failed, and whose failure it was
// is printed. Exit code 77 tells CTest that every test was skipped.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <exception>

namespace {

/// Prefixes each failure with its rank; only rank 0 prints progress.
class RankPrinter : public testing::EmptyTestEventListener {
 public:
  explicit RankPrinter(int rank) : rank_(rank) {}

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_, result.file_name() ? result.file_name() : "?",
                 result.line_number(), result.message());
  }
  int rank_;
};

int max_over_ranks(int value) {
  int result = value;
  MPI_Allreduce(&value, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new RankPrinter(rank));
  int failed = 1;
  try {
    failed = RUN_ALL_TESTS();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const auto& unit = *testing::UnitTest::GetInstance();
  const bool all_skipped =
      unit.skipped_test_count() > 0 && unit.skipped_test_count() == unit.test_to_run_count();
  failed = max_over_ranks(failed);
  MPI_Finalize();
  if (failed != 0) return 1;
  return all_skipped ? 77 : 0;
}
