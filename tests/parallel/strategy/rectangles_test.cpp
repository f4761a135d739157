#include "parallel/strategy/rectangles.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "models/slicing/slices.hpp"

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

/// What a rank holds of a whole tensor lies there where its rectangles say.
void expect_in_whole(const models::HeldSlice& slice, at::MemoryFormat format) {
  const at::Tensor whole = at::arange(c10::multiply_integers(slice.whole)).view(slice.whole).to(at::kFloat);
  const at::Tensor held = models::part_of_whole(whole, slice, slice.part).contiguous(format).clone();
  const auto strides = held.strides().vec();
  std::int64_t elements = 0;
  for (const Range& part : {Range{0, held.numel() / 3}, Range{held.numel() / 3, held.numel()}}) {
    for (const auto& rectangle : rectangles_of(part, held.sizes().vec(), strides)) {
      for (const auto& piece : in_whole(slice, rectangle, strides)) {
        at::Tensor there = whole;
        for (std::size_t dim = 0; dim < piece.offset.size(); ++dim)
          there = there.narrow(static_cast<std::int64_t>(dim), piece.offset[dim], piece.extent[dim]);
        EXPECT_TRUE(at::equal(held.as_strided(piece.extent, strides, piece.place), there));
        elements += there.numel();
      }
    }
  }
  EXPECT_EQ(elements, held.numel());
}

TEST(RectanglesTest, OfASliceLieInTheWholeTensor) {
  using at::MemoryFormat;
  expect_in_whole({.whole = {7}, .view = {7}, .dim = 0, .part = {2, 5}}, MemoryFormat::Contiguous);
  expect_in_whole({.whole = {7, 5}, .view = {7, 5}, .dim = 1, .part = {3, 5}}, MemoryFormat::Contiguous);
  // Queries, keys and values of some heads.
  expect_in_whole({.whole = {24, 5}, .view = {3, 4, 2, 5}, .dim = 1, .part = {1, 3}},
                  MemoryFormat::Contiguous);
  expect_in_whole({.whole = {24}, .view = {3, 4, 2}, .dim = 1, .part = {1, 4}}, MemoryFormat::Contiguous);
  expect_in_whole({.whole = {5, 8}, .view = {5, 4, 2}, .dim = 1, .part = {0, 3}}, MemoryFormat::Contiguous);
  for (const std::int64_t dim : {0, 1})
    expect_in_whole({.whole = {6, 4, 3, 3}, .view = {6, 4, 3, 3}, .dim = dim, .part = {1, 3}},
                    MemoryFormat::ChannelsLast);
}

}  // namespace
}  // namespace dtrain::parallel
