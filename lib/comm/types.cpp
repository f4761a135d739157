#include "comm/types.hpp"

#include <array>
#include <string>

#include "core/element_type.hpp"
#include "core/error.hpp"

namespace dtrain::comm {
namespace {
// In the order of DataType.
constexpr std::array<ElementType, 6> kTypes = {ElementType::float32,  ElementType::float64,
                                               ElementType::bfloat16, ElementType::float16,
                                               ElementType::int32,    ElementType::int64};
constexpr std::array<std::string_view, 3> kOps = {"sum", "max", "min"};
constexpr std::array<std::string_view, 5> kAlgorithms = {"auto", "mpi", "ring", "tree", "hierarchical"};
}  // namespace

std::size_t size_of(DataType type) { return element_bytes(kTypes[static_cast<std::size_t>(type)]); }
std::string_view name_of(DataType type) { return element_name(kTypes[static_cast<std::size_t>(type)]); }
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
