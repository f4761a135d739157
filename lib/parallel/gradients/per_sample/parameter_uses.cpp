#include "parallel/gradients/per_sample/parameter_uses.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "parallel/gradients/per_sample/by_sample.hpp"
#include "parallel/gradients/per_sample/convolution_gradients.hpp"

namespace dtrain::parallel {

/// A sum over rows of outer products, each sample's own: the sum over t of left[t]^T right[t], where left has
/// as many columns as the parameter has rows; or, with `ids`, right[t] is added to row ids[t].
struct OuterProducts {
  at::Tensor left;   // [n, T, rows]; undefined with ids
  at::Tensor ids;    // int64 [n, T]
  at::Tensor right;  // [n, T, columns]

  std::int64_t length() const { return right.size(1); }
  bool looks_up() const { return ids.defined(); }
};

namespace {

using models::ParameterUse;
using UseKind = ParameterUse::Kind;

/// [rows, ...] as [n, rows of a sample, ...], the last dims as they are.
at::Tensor grouped(const at::Tensor& values, const ParameterUse& use, std::int64_t n, std::int64_t columns) {
  const auto rows = values.reshape({-1, columns});
  if (use.samples.defined()) return padded_by_sample(rows, use.samples, n);
  return rows.view({n, n > 0 ? rows.size(0) / n : 0, columns});
}

OuterProducts products_of(const ParameterUse& use, std::int64_t n) {
  const auto back = grouped(use.gradient, use, n, use.gradient.size(-1));
  if (use.kind == UseKind::product) {
    const auto in = grouped(use.input, use, n, use.input.size(-1));
    return use.swapped ? OuterProducts{.left = in, .ids = {}, .right = back}
                       : OuterProducts{.left = back, .ids = {}, .right = in};
  }
  auto ids = use.input.to(at::kLong);
  ids = grouped(ids, use, n, 1).squeeze(2);
  auto right = back;
  if (use.padding >= 0) right = right.masked_fill(ids.eq(use.padding).unsqueeze(2), 0);
  return {.left = {}, .ids = ids, .right = right};
}

/// [n, elements]: of a parameter that scales or shifts.
at::Tensor reduced(const ParameterUse& use, std::int64_t n) {
  auto values = use.kind == UseKind::scale ? use.gradient * use.input : use.gradient;
  std::vector<std::int64_t> over;
  for (std::int64_t dim = 1; dim < values.dim(); ++dim) {
    if (use.shape.at(static_cast<std::size_t>(dim)) == 1 && values.size(dim) != 1) over.push_back(dim);
  }
  if (!over.empty()) values = at::sum(values, over, true);
  const auto rows = values.size(0);
  values = values.reshape({rows, rows > 0 ? values.numel() / rows : 0});
  if (use.samples.defined()) {
    auto sums = at::zeros({n, values.size(1)}, values.options());
    return rows > 0 ? sums.index_add_(0, use.samples, values) : sums;
  }
  return rows == n ? values : at::sum(values.view({n, rows / n, values.size(1)}), 1);
}

/// Rows of a table, [rows, columns], to which `values` [m, columns] are added at `ids`, int64 [m].
at::Tensor rows_with(const at::Tensor& values, const at::Tensor& ids, std::int64_t rows) {
  constexpr std::int64_t kNoPadding = -1;
  return at::embedding_dense_backward(values, ids, rows, kNoPadding, false);
}

/// Squared norms of lookups: the rows of each sample are added up by word first.
void add_squares_of_lookup(const OuterProducts& lookup, std::int64_t words, at::Tensor& squares) {
  const auto n = lookup.ids.size(0);
  if (lookup.ids.numel() == 0) return;
  const auto keys = lookup.ids + at::arange(n, at::kLong).unsqueeze(1) * words;
  const auto [met, places, counts] = at::_unique2(keys.reshape({-1}), true, true, false);
  const auto rows =
      rows_with(lookup.right.reshape({-1, lookup.right.size(2)}), places.reshape({-1}), met.size(0));
  squares.index_add_(0, at::floor_divide(met, words), squares_by_sample(rows));
}

/// Of two uses, the sum over all pairs of rows; samples [begin, begin + count).
at::Tensor pair_sum(const OuterProducts& one, const OuterProducts& other, std::int64_t begin,
                    std::int64_t count) {
  const auto part = [&](const at::Tensor& of) {
    const auto rows = of.narrow(0, begin, count);
    return of.is_floating_point() ? rows.to(at::kDouble) : rows;  // see add_squares_by_pairs()
  };
  const auto rights = at::bmm(part(one.right), part(other.right).transpose(1, 2));  // [count, T, T']
  at::Tensor lefts;
  if (one.looks_up() && other.looks_up()) {
    lefts = part(one.ids).unsqueeze(2).eq(part(other.ids).unsqueeze(1)).to(rights.scalar_type());
  } else if (one.looks_up()) {  // other.left[t', ids[t]]
    const auto ids = part(one.ids).unsqueeze(1).expand({count, other.length(), one.length()});
    lefts = part(other.left).gather(2, ids).transpose(1, 2);
  } else if (other.looks_up()) {
    const auto ids = part(other.ids).unsqueeze(1).expand({count, one.length(), other.length()});
    lefts = part(one.left).gather(2, ids);
  } else {
    lefts = at::bmm(part(one.left), part(other.left).transpose(1, 2));
  }
  return at::sum(lefts * rights, {1, 2});
}

}  // namespace

/// All uses of a parameter.
class ParameterUses::OfOne {
 public:
  explicit OfOne(models::Parameter* parameter) : parameter_(parameter) {}

  const models::Parameter* parameter() const { return parameter_; }

  void take(const ParameterUse& use, std::int64_t n) {
    if (!use.gradient.defined()) return;
    if (use.input.defined() && use.input._version() != use.version) {
      throw Error("what it was multiplied by has been written to since",
                  {.subject = fmt::format("parameter {}", parameter_->name),
                   .advice = "write to no tensor in place, or train without --dp-clip",
                   .code = ExitCode::usage});
    }
    n_ = n;
    switch (use.kind) {
      case UseKind::product:
      case UseKind::lookup:
        products_.push_back(products_of(use, n));
        return;
      case UseKind::scale:
      case UseKind::shift:
        reduced_.push_back(reduced(use, n));
        return;
      case UseKind::convolution:
        convolutions_.push_back({ConvolutionGradients(use.convolved), use.input, use.gradient});
        return;
    }
  }

  /// `kept`: elements of gradients by sample that are held already, over all parameters. What is added is at
  /// least 0, so that no parameter hides the norm of another one.
  void add_squares(at::Tensor& squares, std::int64_t& kept) {
    const auto kinds = products_.size() + reduced_.size() + convolutions_.size();
    if (kinds == 0) return;
    if (products_.size() == kinds) {
      auto own = at::zeros_like(squares);
      add_squares_of_products(own, kept);
      squares += own.clamp_min_(0);
      if (!by_sample_.defined()) squares += rounding();
    } else if (kinds == 1 && reduced_.size() == 1) {
      squares += squares_by_sample(reduced_[0]);
    } else if (kinds == 1) {
      auto& only = convolutions_[0];
      only.gradients.add_squares(only.input, only.gradient, value(), squares);
    } else {
      add_squares_directly(squares, Keep::no);
      squares += rounding();
    }
  }

  void add_to(at::Tensor part, const at::Tensor& factors) const {
    if (by_sample_.defined()) {
      part.add_(at::matmul(factors, by_sample_).view(value().sizes()));
      return;
    }
    for (const auto& one : products_) part.add_(weighted_sum(one, factors));
    for (const auto& values : reduced_) first_rows(part, values.size(1)).add_(sum_in_shape(values, factors));
    for (const auto& one : convolutions_)
      part.add_(one.gradients.weighted_sum(one.input, one.gradient, value(), factors));
  }

 private:
  enum class Keep { no, yes };
  struct Convolved {
    ConvolutionGradients gradients;
    at::Tensor input;
    at::Tensor gradient;
  };

  const at::Tensor& value() const { return parameter_->value; }
  std::int64_t elements() const { return value().numel(); }

  /// squares_of_rounding() of the sum over all uses, double [n].
  at::Tensor rounding() const {
    auto norms = at::zeros({n_}, at::kDouble);
    for (const auto& one : products_) {
      const auto of_right = squares_by_sample(one.right);
      const auto of_left =
          one.looks_up() ? at::full_like(of_right, one.length()) : squares_by_sample(one.left);
      norms += at::sqrt(squares_of_rounding(of_left, of_right));
    }
    for (const auto& one : convolutions_)
      norms += at::sqrt(ConvolutionGradients::rounding(one.input, one.gradient, value()));
    for (const auto& values : reduced_) {
      const auto squares = squares_by_sample(values);
      norms += at::sqrt(squares_of_rounding(at::ones_like(squares), squares));
    }
    return at::square(norms);
  }

  /// By the pairs of rows or by the gradients, whichever costs less multiplications; gradients that are kept
  /// save the weighted sum, too.
  void add_squares_of_products(at::Tensor& squares, std::int64_t& kept) {
    if (products_.size() == 1 && products_[0].looks_up()) {
      add_squares_of_lookup(products_[0], value().size(0), squares);
      return;
    }
    const auto rows = static_cast<double>(value().size(0));
    const auto columns = static_cast<double>(value().size(1));
    constexpr double kDouble = 2;  // what a product in double costs
    double by_pairs = 0;
    double directly = 0;
    for (std::size_t i = 0; i < products_.size(); ++i) {
      const auto length = static_cast<double>(products_[i].length());
      directly += length * columns * (products_[i].looks_up() ? 1 : rows);
      for (std::size_t j = i; j < products_.size(); ++j) {
        const bool dense = !products_[i].looks_up() && !products_[j].looks_up();
        by_pairs +=
            kDouble * length * static_cast<double>(products_[j].length()) * (columns + (dense ? rows : 0));
      }
    }
    const bool fits = kept + n_ * elements() <= kMostKept;
    if (fits && rows * columns <= by_pairs) {
      add_squares_directly(squares, Keep::yes);
      kept += n_ * elements();
    } else if (by_pairs < directly) {
      add_squares_by_pairs(squares);
    } else {
      add_squares_directly(squares, Keep::no);
    }
  }

  void add_squares_by_pairs(at::Tensor& squares) const {
    for (std::size_t i = 0; i < products_.size(); ++i) {
      for (std::size_t j = i; j < products_.size(); ++j) {
        const auto pairs = products_[i].length() * products_[j].length();
        const auto at_once = std::max<std::int64_t>(1, kMostAtOnce / std::max<std::int64_t>(1, 4 * pairs));
        for (std::int64_t begin = 0; begin < n_; begin += at_once) {
          const auto count = std::min(at_once, n_ - begin);
          squares.narrow(0, begin, count)
              .add_(pair_sum(products_[i], products_[j], begin, count), i == j ? 1 : 2);
        }
      }
    }
  }

  void add_squares_directly(at::Tensor& squares, Keep keep) {
    const bool keeps = keep == Keep::yes;
    if (keeps) by_sample_ = at::empty({n_, elements()}, value().options().requires_grad(false));
    const auto at_once = std::max<std::int64_t>(1, kMostAtOnce / std::max<std::int64_t>(1, elements()));
    for (std::int64_t begin = 0; begin < n_; begin += at_once) {
      const auto count = std::min(at_once, n_ - begin);
      const auto gradients = gradients_of(begin, count);
      squares.narrow(0, begin, count) += squares_by_sample(gradients);
      if (keeps) by_sample_.narrow(0, begin, count).copy_(gradients);
    }
  }

  /// Of samples [begin, begin + count): [count, elements].
  at::Tensor gradients_of(std::int64_t begin, std::int64_t count) const {
    at::Tensor all;
    const auto add = [&](const at::Tensor& more) { all = all.defined() ? all.add_(more) : more; };
    for (const auto& one : products_) {
      const auto right = one.right.narrow(0, begin, count);
      if (one.looks_up()) {
        const auto rows = value().size(0);
        const auto ids = one.ids.narrow(0, begin, count) + at::arange(count, at::kLong).unsqueeze(1) * rows;
        add(rows_with(right.reshape({-1, right.size(2)}), ids.reshape({-1}), count * rows)
                .view({count, elements()}));
      } else {
        add(at::bmm(one.left.narrow(0, begin, count).transpose(1, 2), right).view({count, elements()}));
      }
    }
    for (const auto& values : reduced_) {
      auto whole = at::zeros({count, elements()}, values.options());
      whole.narrow(1, 0, values.size(1)).copy_(values.narrow(0, begin, count));
      add(whole);
    }
    for (const auto& one : convolutions_) {
      auto whole = at::empty({count, elements()}, one.gradient.options());
      for (std::int64_t i = 0; i < count; ++i) {
        whole.select(0, i).copy_(std::get<1>(one.gradients.backward(one.input.narrow(0, begin + i, 1),
                                                                    one.gradient.narrow(0, begin + i, 1),
                                                                    value(), {false, true, false}))
                                     .reshape({-1}));
      }
      add(whole);
    }
    return all;
  }

  /// The smaller factor is weighted.
  at::Tensor weighted_sum(const OuterProducts& one, const at::Tensor& factors) const {
    const auto columns = one.right.size(2);
    if (one.looks_up()) {
      return rows_with(weighted(one.right, factors).reshape({-1, columns}), one.ids.reshape({-1}),
                       value().size(0));
    }
    const auto rows = one.left.size(2);
    const bool left = rows < columns;
    const auto factor = (left ? weighted(one.left, factors) : one.left).reshape({-1, rows});
    return at::mm(factor.t(), (left ? one.right : weighted(one.right, factors)).reshape({-1, columns}));
  }

  /// A parameter's first rows, or all.
  at::Tensor first_rows(const at::Tensor& part, std::int64_t count) const {
    return count == elements() ? part : part.narrow(0, 0, count / (elements() / value().size(0)));
  }
  at::Tensor sum_in_shape(const at::Tensor& values, const at::Tensor& factors) const {
    return at::matmul(factors, values).view(first_rows(value(), values.size(1)).sizes());
  }

  models::Parameter* parameter_;
  std::int64_t n_ = 0;
  std::vector<OuterProducts> products_;
  std::vector<at::Tensor> reduced_;  // [n, elements of the parameter's first rows]
  std::vector<Convolved> convolutions_;
  at::Tensor by_sample_;  // [n, elements], kept where that pays
};

ParameterUses::ParameterUses(const std::vector<std::shared_ptr<ParameterUse>>& uses, std::int64_t samples) {
  const at::NoGradGuard no_grad;
  for (const auto& use : uses) {
    auto place =
        std::ranges::find_if(all_, [&](const auto& one) { return one->parameter() == use->parameter; });
    if (place == all_.end()) {
      all_.push_back(std::make_unique<OfOne>(use->parameter));
      place = std::prev(all_.end());
    }
    (*place)->take(*use, samples);
  }
}

ParameterUses::~ParameterUses() = default;
ParameterUses::ParameterUses(ParameterUses&&) noexcept = default;
ParameterUses& ParameterUses::operator=(ParameterUses&&) noexcept = default;

bool ParameterUses::has(const models::Parameter* parameter) const {
  return std::ranges::any_of(all_, [&](const auto& one) { return one->parameter() == parameter; });
}

void ParameterUses::add_squares(at::Tensor& squares) {
  const at::NoGradGuard no_grad;
  for (const auto& one : all_) one->add_squares(squares, kept_);
}

void ParameterUses::add_to(ClippedSum& sum, const at::Tensor& factors) const {
  const at::NoGradGuard no_grad;
  for (const auto& one : all_) {
    if (auto part = sum.part_of(one->parameter()); part.defined()) one->add_to(part, factors);
  }
}

}  // namespace dtrain::parallel
