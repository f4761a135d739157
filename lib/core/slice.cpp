#include "core/slice.hpp"

#include <utility>

#include "core/error.hpp"

namespace dtrain {

Slice Slice::whole(std::string name, std::vector<std::int64_t> shape) {
  std::vector<std::int64_t> offset(shape.size(), 0);
  auto extent = shape;
  return {std::move(name), std::move(shape), std::move(offset), std::move(extent)};
}

std::int64_t Slice::count() const {
  std::int64_t n = 1;
  for (const auto e : extent) n *= e;
  return n;
}

bool Slice::is_whole() const { return extent == global_shape; }

void Slice::validate() const {
  const ErrorContext context{.subject = name, .advice = "this is a fault of the file or of its writer"};
  require(offset.size() == global_shape.size() && extent.size() == global_shape.size(),
          "a slice has other dims than its tensor", context);
  for (std::size_t d = 0; d < offset.size(); ++d) {
    require(offset[d] >= 0 && extent[d] >= 0 && offset[d] + extent[d] <= global_shape[d],
            "a slice leaves its tensor", context);
  }
}

Range part_of(std::int64_t n, std::int64_t index, std::int64_t parts) {
  return {index * n / parts, (index + 1) * n / parts};
}

}  // namespace dtrain
