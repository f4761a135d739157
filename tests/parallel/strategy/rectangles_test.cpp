#include "parallel/strategy/rectangles.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace dtrain::parallel {
namespace {

/// The elements of a rectangle, by their place in memory.
std::vector<std::int64_t> elements_of(const Rectangle& rectangle, const std::vector<std::int64_t>& strides) {
  std::vector<std::int64_t> places = {rectangle.place};
  for (std::size_t dim = 0; dim < strides.size(); ++dim) {
    std::vector<std::int64_t> next;
    for (const auto place : places) {
      for (std::int64_t i = 0; i < rectangle.extent[dim]; ++i) next.push_back(place + i * strides[dim]);
    }
    places = std::move(next);
  }
  return places;
}

void expect_cover(const Range& part, const at::Tensor& tensor) {
  const auto shape = tensor.sizes().vec();
  const auto strides = tensor.strides().vec();
  const auto rectangles = rectangles_of(part, shape, strides);
  std::set<std::int64_t> found;
  for (const auto& rectangle : rectangles) {
    std::int64_t place = 0;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      EXPECT_GE(rectangle.offset[dim], 0);
      EXPECT_LE(rectangle.offset[dim] + rectangle.extent[dim], shape[dim]);
      place += rectangle.offset[dim] * strides[dim];
    }
    EXPECT_EQ(place, rectangle.place);
    for (const auto element : elements_of(rectangle, strides)) EXPECT_TRUE(found.insert(element).second);
  }
  EXPECT_EQ(static_cast<std::int64_t>(found.size()), part.size());
  if (!found.empty()) {
    EXPECT_EQ(*found.begin(), part.begin);
    EXPECT_EQ(*found.rbegin() + 1, part.end);
  }
  EXPECT_LE(rectangles.size(), shape.empty() ? 1 : 2 * shape.size() - 1);
}

TEST(RectanglesTest, HaveEachElementOnce) {
  std::mt19937 random(7);
  const auto below = [&random](std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
  };
  for (int i = 0; i < 300; ++i) {
    std::vector<std::int64_t> shape;
    for (std::int64_t dims = below(5); dims > 0; --dims) shape.push_back(1 + below(5));
    at::Tensor tensor = at::empty(shape);
    if (shape.size() == 4 && i % 2 == 0) tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
    if (shape.size() == 2 && i % 2 == 0) tensor = at::empty({shape[1], shape[0]}).t();
    const auto begin = below(tensor.numel() + 1);
    const auto end = begin + below(tensor.numel() - begin + 1);
    SCOPED_TRACE(::testing::Message()
                 << tensor.sizes() << " " << tensor.strides() << " [" << begin << ", " << end << ")");
    expect_cover({begin, end}, tensor);
  }
}

}  // namespace
}  // namespace dtrain::parallel
