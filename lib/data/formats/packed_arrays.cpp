#include "data/formats/packed_arrays.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"

namespace dtrain::data {
namespace {

constexpr std::int64_t kMostIds = 1 << 24;
constexpr std::int64_t kMostArrayBytes = std::int64_t{4} << 30;

/// Copies each sample's elements to where the input begins in the row.
template <typename T, typename Convert>
void spread(const Column& column, std::span<float> rows, std::int64_t width, std::int64_t begin,
            Convert convert) {
  const auto values = read_whole<T>(column);
  const auto count = element_count(column.row_shape());
  for (std::int64_t row = 0; row < column.rows(); ++row) {
    for (std::int64_t i = 0; i < count; ++i)
      rows[static_cast<std::size_t>(row * width + begin + i)] =
          convert(values[static_cast<std::size_t>(row * count + i)], row);
  }
}

/// Fills the rows and says what there is.
InputInfo place(const std::string& name, const Column& column, const std::string& subject,
                std::span<float> rows, std::int64_t width, std::int64_t begin) {
  InputInfo info{.name = name, .shape = column.row_shape()};
  if (column.type() == ElementType::float32) {
    spread<float>(column, rows, width, begin, [](float value, std::int64_t) { return value; });
  } else if (column.type() == ElementType::uint8) {
    info.bytes = info.shape.size() == 3;
    const float most = info.bytes ? 255.0F : 1.0F;
    spread<std::uint8_t>(column, rows, width, begin, [most](std::uint8_t value, std::int64_t) {
      return static_cast<float>(value) / most;
    });
  } else {
    spread<std::int64_t>(column, rows, width, begin, [&](std::int64_t value, std::int64_t row) {
      if (value < 0 || value >= kMostIds)
        throw data_error(fmt::format("has the id {} in sample {}, outside 0 to {}", value, row, kMostIds - 1),
                         subject, "give whole numbers from 0 as ids, or floats");
      info.ids = std::max(info.ids, value + 1);
      return static_cast<float>(value);
    });
  }
  return info;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> named_arrays(const std::string& inputs) {
  std::vector<std::pair<std::string, std::string>> named;
  if (inputs.find('=') == std::string::npos) return named;
  for (std::size_t begin = 0; begin <= inputs.size();) {
    const auto end = std::min(inputs.find(',', begin), inputs.size());
    const std::string pair = inputs.substr(begin, end - begin);
    const auto equals = pair.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size())
      throw usage_error(fmt::format("has \"{}\", which is no pair", pair), "--inputs " + inputs,
                        "write NAME=ARRAY,NAME=ARRAY");
    named.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    begin = end + 1;
  }
  for (auto one = named.begin(); one != named.end(); ++one) {
    if (std::any_of(named.begin(), one, [&](const auto& other) { return other.first == one->first; }))
      throw usage_error(fmt::format("names the input {} twice", one->first), "--inputs " + inputs,
                        "give each input a name of its own");
  }
  return named;
}

const std::vector<ElementType>& packed_types() {
  static const std::vector<ElementType> kTypes = {ElementType::float32, ElementType::uint8,
                                                  ElementType::int64};
  return kTypes;
}

PackedRows pack_inputs(const std::vector<std::pair<std::string, std::string>>& named,
                       const std::vector<std::shared_ptr<const Column>>& columns,
                       const std::string& subject) {
  const auto name_of = [&](std::size_t i) { return subject + ":" + named[i].second; };
  const std::int64_t samples = columns.at(0)->rows();
  std::int64_t width = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (columns[i]->rows() != samples)
      throw data_error(
          fmt::format("holds {} samples but {} has {}", columns[i]->rows(), named[0].second, samples),
          name_of(i), "give arrays that belong together");
    width += element_count(columns[i]->row_shape());
  }
  if (width > kMostArrayBytes / static_cast<std::int64_t>(sizeof(float)) / std::max<std::int64_t>(samples, 1))
    throw data_error("has more than 4 GiB of inputs", subject, "stage fewer samples");
  HostArray rows;
  rows.reset(ElementType::float32, {samples, width});
  std::vector<InputInfo> inputs;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    inputs.push_back(place(named[i].first, *columns[i], name_of(i), rows.as<float>(), width, begin));
    begin += element_count(columns[i]->row_shape());
  }
  return {.rows = MemoryColumn::of(std::move(rows)), .inputs = std::move(inputs)};
}

Originals from_packed(const std::vector<std::pair<std::string, std::string>>& named,
                      const std::vector<std::shared_ptr<const Column>>& columns,
                      std::shared_ptr<const Column> targets, const std::string& subject,
                      const std::string& targets_subject, const std::string& task) {
  for (std::size_t i = 0; i < columns.size(); ++i)
    require_same_count(*columns[i], *targets, subject + ":" + named[i].second, targets_subject);
  PackedRows packed = pack_inputs(named, columns, subject);
  Originals found = from_arrays(std::move(packed.rows), std::move(targets), subject, targets_subject, task);
  found.inputs = std::move(packed.inputs);
  return found;
}

}  // namespace dtrain::data
