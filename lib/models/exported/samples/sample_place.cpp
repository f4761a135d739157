#include "models/exported/samples/sample_place.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace dtrain::models::exported {
namespace {

constexpr std::array<std::int64_t, 2> kOthers = {12, 24};  // what all other symbols are, twice

/// Nothing where it is no whole number.
std::optional<std::int64_t> evaluated(const SizeExpression& size, const std::string& samples, std::int64_t n,
                                      std::int64_t others) {
  Symbols symbols;
  for (const auto& symbol : size.symbols()) symbols[symbol] = others;
  symbols[samples] = n;
  try {
    return size.evaluate(symbols);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

bool SampleSizes::depends(ValueId value) const {
  return graph_[value].tensor && !dims_with_samples(value).empty();
}

std::vector<std::size_t> SampleSizes::dims_with_samples(ValueId value) const {
  std::vector<std::size_t> dims;
  for (std::size_t dim = 0; dim < of(value).size(); ++dim) {
    if (depends(of(value)[dim])) dims.push_back(dim);
  }
  return dims;
}

/// What a size is for each sample; nothing where it is no multiple of their number.
std::optional<SamplePlace::Twice> SampleSizes::each(const SizeExpression& size) const {
  SamplePlace::Twice found{};
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::array<std::int64_t, 3> sizes{};
    for (std::size_t n = 0; n < sizes.size(); ++n) {
      const auto now = evaluated(size, samples_, static_cast<std::int64_t>(n) + 2, kOthers[i]);
      if (!now) return std::nullopt;
      sizes[n] = *now;
    }
    found[i] = sizes[0] / 2;
    if (found[i] * 2 != sizes[0] || found[i] * 3 != sizes[1] || found[i] * 4 != sizes[2]) return std::nullopt;
  }
  return found;
}

std::optional<SamplePlace> SampleSizes::place(ValueId value) const {
  if (!graph_[value].tensor) return std::nullopt;
  const auto dims = dims_with_samples(value);
  if (dims.size() != 1) return std::nullopt;
  const auto rows = each(of(value)[dims[0]]);
  return rows ? std::optional(SamplePlace{.dim = dims[0], .after = *rows}) : std::nullopt;
}

bool SampleSizes::fits(ValueId value, const SamplePlace& place) const {
  const auto by_size = this->place(value);
  if (!by_size || by_size->dim != place.dim) return false;
  for (std::size_t i = 0; i < place.before.size(); ++i) {
    if (place.before[i] * place.after[i] != by_size->after[i]) return false;
  }
  return true;
}

/// Of the dims behind `dim`, none of which has samples.
std::optional<SamplePlace::Twice> SampleSizes::elements_behind(ValueId value, std::size_t dim) const {
  SamplePlace::Twice found = {1, 1};
  for (std::size_t other = dim + 1; other < of(value).size(); ++other) {
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto size = evaluated(of(value)[other], samples_, 2, kOthers[i]);
      if (!size) return std::nullopt;
      found[i] *= *size;
    }
  }
  return found;
}

std::optional<SamplePlace> SampleSizes::reshaped(ValueId from, const SamplePlace& place, ValueId to) const {
  const auto by_size = this->place(to);
  if (!by_size) return std::nullopt;
  const auto behind_before = elements_behind(from, place.dim);
  const auto behind_now = elements_behind(to, by_size->dim);
  if (!behind_before || !behind_now) return std::nullopt;
  SamplePlace made{.dim = by_size->dim};
  for (std::size_t i = 0; i < made.before.size(); ++i) {
    const auto stride = place.after[i] * (*behind_before)[i];  // elements from one sample to the next
    if ((*behind_now)[i] == 0 || stride % (*behind_now)[i] != 0) return std::nullopt;
    made.after[i] = stride / (*behind_now)[i];
    if (made.after[i] == 0 || by_size->after[i] % made.after[i] != 0) return std::nullopt;
    made.before[i] = by_size->after[i] / made.after[i];
  }
  return made;
}

}  // namespace dtrain::models::exported
