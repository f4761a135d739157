// How long a checkpoint takes to come back: every byte of every file against its SHA-256, and every tensor
// into memory that is there already. Prints a CSV line: bytes, seconds of checking, seconds of reading.
//   read_checkpoint FOLDER
#include <fmt/core.h>

#include <cstddef>
#include <vector>

#include "checkpoint/reader.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "h5/library.hpp"

int main(int argc, char** argv) {
  using namespace dtrain;
  if (argc != 2) {
    fmt::print(stderr, "read_checkpoint FOLDER\n");
    return 2;
  }
  try {
    h5::Library library;
    const double start_s = steady_s();
    const auto reader = checkpoint::load(argv[1], library, checkpoint::Verify::everything);
    const double checked_s = steady_s();
    std::vector<std::vector<std::byte>> tensors;
    for (const auto& tensor : reader.manifest().tensors) {
      tensors.emplace_back(static_cast<std::size_t>(tensor.bytes()));
    }
    const double begin_s = steady_s();
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto& tensor = reader.manifest().tensors[i];
      reader.read(tensor.name, tensor.dtype, tensors[i]);
      bytes += tensors[i].size();
    }
    fmt::print("{},{:.6f},{:.6f}\n", bytes, checked_s - start_s, steady_s() - begin_s);
  } catch (const Error& error) {
    fmt::print(stderr, "read_checkpoint: {}: {}\n", error.subject(), error.problem());
    return static_cast<int>(error.code());
  }
  return 0;
}
