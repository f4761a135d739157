// memory_faults FAULT: does on rank 0 what the sanitizers are there to find, and ends as if nothing had been.
#include <mpi.h>

#include <climits>
#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::string_view fault = rank == 0 && argc > 1 ? argv[1] : "";
  const std::vector<int> values(4);
  const volatile std::size_t beyond = values.size();
  volatile int number = INT_MAX;
  if (fault == "overflow") std::printf("%d\n", values.data()[beyond]);
  if (fault == "sum") number = number + 1;
  if (fault == "leak") std::printf("%p\n", static_cast<void*>(new std::vector<int>(beyond)));
  if (fault == "race") {
    int shared = 0;
    std::thread other([&shared] { ++shared; });
    ++shared;
    other.join();
    std::printf("%d\n", shared);
  }
  MPI_Finalize();
  return 0;
}
