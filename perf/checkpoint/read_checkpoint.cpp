// How long a checkpoint takes to come back: from opening it until every tensor lies in memory that is asked
// for meanwhile. `checked`: every byte of every file against its SHA-256 first. Once in a process, because a
// second time would find memory that it has used. Prints a CSV line: bytes, seconds.
//   read_checkpoint FOLDER checked|unchecked
#include <fmt/core.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "checkpoint/reader.hpp"
#include "core/clock.hpp"
#include "core/error.hpp"
#include "h5/library.hpp"

int main(int argc, char** argv) {
  using namespace dtrain;
  const std::string_view how = argc == 3 ? argv[2] : "";
  if (how != "checked" && how != "unchecked") {
    fmt::print(stderr, "read_checkpoint FOLDER checked|unchecked\n");
    return 2;
  }
  try {
    h5::Library library;
    const double start_s = steady_s();
    const auto reader = checkpoint::load(
        argv[1], library, how == "checked" ? checkpoint::Verify::everything : checkpoint::Verify::manifest);
    std::vector<std::vector<std::byte>> tensors;
    std::size_t bytes = 0;
    for (const auto& tensor : reader.manifest().tensors) {
      auto& values = tensors.emplace_back(static_cast<std::size_t>(tensor.bytes()));
      reader.read(tensor.name, tensor.dtype, values);
      bytes += values.size();
    }
    fmt::print("{},{:.6f}\n", bytes, steady_s() - start_s);
  } catch (const Error& error) {
    fmt::print(stderr, "read_checkpoint: {}: {}\n", error.subject(), error.problem());
    return static_cast<int>(error.code());
  }
  return 0;
}
