#include "comm/types.hpp"

#include <array>
#include <string>

#include "core/error.hpp"

namespace dtrain::comm {
namespace {
constexpr std::array<std::size_t, 6> kSizes = {4, 8, 2, 2, 4, 8};
constexpr std::array<std::string_view, 6> kTypes = {"float32", "float64", "bfloat16",
                                                    "float16", "int32",   "int64"};
constexpr std::array<std::string_view, 3> kOps = {"sum", "max", "min"};
constexpr std::array<std::string_view, 5> kAlgorithms = {"auto", "mpi", "ring", "tree", "hierarchical"};
}  // namespace

std::size_t size_of(DataType type) { return kSizes[static_cast<std::size_t>(type)]; }
std::string_view name_of(DataType type) { return kTypes[static_cast<std::size_t>(type)]; }
std::string_view name_of(ReduceOp op) { return kOps[static_cast<std::size_t>(op)]; }
std::string_view name_of(Algorithm algorithm) { return kAlgorithms[static_cast<std::size_t>(algorithm)]; }

Algorithm parse_algorithm(std::string_view name) {
  for (std::size_t i = 0; i < kAlgorithms.size(); ++i) {
    if (name == kAlgorithms[i]) return static_cast<Algorithm>(i);
  }
  throw usage_error("there is no such algorithm", "--all-reduce " + std::string(name),
                    "use one of auto, mpi, ring, tree, hierarchical");
}

}  // namespace dtrain::comm
