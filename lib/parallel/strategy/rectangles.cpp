#include "parallel/strategy/rectangles.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>

namespace dtrain::parallel {
namespace {

/// Cuts a range of elements of a dense tensor into rectangles, from the dim of the longest stride inwards.
class Cutter {
 public:
  Cutter(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides)
      : shape_(shape), strides_(strides), dims_(shape.size()) {
    std::iota(dims_.begin(), dims_.end(), std::size_t{0});
    // Dims of one element have any stride; among equal strides they come first, and are never cut.
    std::ranges::stable_sort(dims_, [&](std::size_t a, std::size_t b) {
      return std::pair(strides_[a], -shape_[a]) > std::pair(strides_[b], -shape_[b]);
    });
  }

  std::vector<Rectangle> cut(const Range& part) {
    if (part.size() > 0) cut(0, part, {.offset = std::vector<std::int64_t>(shape_.size()), .extent = shape_});
    return std::move(rectangles_);
  }

 private:
  /// `part`: of the elements behind the indices that `outer` has fixed for the dims before `level`.
  void cut(std::size_t level, const Range& part, Rectangle outer) {
    if (level == dims_.size()) return add(std::move(outer));
    const std::size_t dim = dims_[level];
    const std::int64_t inner = shape_[dim] == 1 ? part.end : strides_[dim];
    const Range whole{(part.begin + inner - 1) / inner, part.end / inner};  // indices that are in it entirely
    const auto one = [&](std::int64_t index, const Range& rest) {
      Rectangle fixed = outer;
      fixed.offset[dim] = index;
      fixed.extent[dim] = 1;
      cut(level + 1, {rest.begin - index * inner, rest.end - index * inner}, std::move(fixed));
    };
    if (shape_[dim] == 1) return cut(level + 1, part, std::move(outer));
    if (whole.begin > whole.end) return one(part.begin / inner, part);  // within one index
    if (part.begin < whole.begin * inner) one(whole.begin - 1, {part.begin, whole.begin * inner});
    if (whole.size() > 0) {
      Rectangle middle = outer;
      middle.offset[dim] = whole.begin;
      middle.extent[dim] = whole.size();
      add(std::move(middle));
    }
    if (whole.end * inner < part.end) one(whole.end, {whole.end * inner, part.end});
  }

  void add(Rectangle rectangle) {
    rectangle.place = std::inner_product(rectangle.offset.begin(), rectangle.offset.end(), strides_.begin(),
                                         std::int64_t{0});
    rectangles_.push_back(std::move(rectangle));
  }

  const std::vector<std::int64_t>& shape_;
  const std::vector<std::int64_t>& strides_;
  std::vector<std::size_t> dims_;  // by stride, the longest first
  std::vector<Rectangle> rectangles_;
};

}  // namespace

std::vector<Rectangle> rectangles_of(const Range& part, const std::vector<std::int64_t>& shape,
                                     const std::vector<std::int64_t>& strides) {
  return Cutter(shape, strides).cut(part);
}

std::vector<Rectangle> in_whole(const models::HeldSlice& slice, const Rectangle& held,
                                const std::vector<std::int64_t>& strides) {
  // The tensor's own dim that the view's sliced dim belongs to, see models::held_shape().
  const auto sliced = static_cast<std::size_t>(slice.dim);
  const auto seen = std::accumulate(slice.view.begin(), slice.view.begin() + slice.dim + 1, std::int64_t{1},
                                    std::multiplies<>());
  std::size_t dim = 0;
  std::int64_t own = slice.whole[0];
  while (own < seen) own *= slice.whole[++dim];
  const std::int64_t inner = own / seen;  // indices of that dim for one of the sliced
  const std::int64_t here = slice.part.size() * inner;
  const std::int64_t there = slice.view[sliced] * inner;
  std::vector<Rectangle> pieces;
  const std::int64_t end = held.offset[dim] + held.extent[dim];
  for (std::int64_t begin = held.offset[dim]; begin < end;) {
    const std::int64_t turn = begin / here;
    const std::int64_t until = std::min(end, (turn + 1) * here);
    Rectangle piece = held;
    piece.offset[dim] = turn * there + slice.part.begin * inner + begin - turn * here;
    piece.extent[dim] = until - begin;
    piece.place += (begin - held.offset[dim]) * strides[dim];
    pieces.push_back(std::move(piece));
    begin = until;
  }
  return pieces;
}

}  // namespace dtrain::parallel
