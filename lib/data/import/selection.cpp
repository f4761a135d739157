#include "data/import/selection.hpp"

#include <algorithm>
#include <cstring>

#include "data/sample_sources.hpp"

namespace dtrain::data {
namespace {

using ColumnPointer = std::shared_ptr<const Column>;

ShardArray rows_of(const std::string& path, const ColumnPointer& column, std::vector<std::int64_t> row_shape,
                   std::span<const std::int64_t> ids) {
  return {.path = path,
          .type = column->type(),
          .row_shape = std::move(row_shape),
          .rows = static_cast<std::int64_t>(ids.size()),
          .read = [column, ids](std::int64_t first, std::int64_t count, std::byte* out) {
            column->gather(ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
                           out);
          }};
}

template <typename T>
ShardArray held(const std::string& path, ElementType type, std::vector<T> values) {
  const auto kept = std::make_shared<const std::vector<T>>(std::move(values));
  return {.path = path,
          .type = type,
          .row_shape = {},
          .rows = static_cast<std::int64_t>(kept->size()),
          .read = [kept](std::int64_t first, std::int64_t count, std::byte* out) {
            std::memcpy(out, kept->data() + first, static_cast<std::size_t>(count) * sizeof(T));
          }};
}

/// The sequences `ids` of (tokens, offsets), one after another.
void add_sequences(std::vector<ShardArray>& arrays, const std::string& tokens_path,
                   const std::string& offsets_path, const Column& tokens, const Column& offsets,
                   std::span<const std::int64_t> ids) {
  const auto begins = read_whole<std::int64_t>(offsets);
  std::vector<std::int64_t> new_begins = {0};
  for (const std::int64_t id : ids) new_begins.push_back(new_begins.back() + begins[id + 1] - begins[id]);
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(new_begins.back()));
  for (std::size_t i = 0; i < ids.size(); ++i)
    tokens.read(begins[ids[i]], new_begins[i + 1] - new_begins[i],
                reinterpret_cast<std::byte*>(chosen.data() + new_begins[i]));
  arrays.push_back(held(tokens_path, ElementType::int32, std::move(chosen)));
  arrays.push_back(held(offsets_path, ElementType::int64, std::move(new_begins)));
}

ShardArray blocks_of(const ColumnPointer& tokens, std::int64_t length, std::span<const std::int64_t> ids,
                     std::int64_t blocks) {
  const std::int64_t first_token = ids.empty() ? 0 : ids.front() * length;
  const auto count = static_cast<std::int64_t>(ids.size());
  const bool last = !ids.empty() && ids.back() == blocks - 1;
  return {.path = "/tokens",
          .type = ElementType::int32,
          .row_shape = {},
          .rows = count * length + (last ? 1 : 0),
          .read = [tokens, first_token](std::int64_t first, std::int64_t n, std::byte* out) {
            tokens->read(first_token + first, n, out);
          }};
}

}  // namespace

std::vector<ShardArray> select_arrays(std::string_view task, const std::vector<ColumnPointer>& columns,
                                      const std::vector<std::int64_t>& sample_shape,
                                      std::span<const std::int64_t> ids) {
  std::vector<ShardArray> arrays;
  switch (layout_of_task(task)) {
    case SampleLayout::text:
      add_sequences(arrays, "/tokens", "/offsets", *columns[0], *columns[1], ids);
      arrays.push_back(rows_of("/targets", columns[2], {}, ids));
      return arrays;
    case SampleLayout::pairs:
      add_sequences(arrays, "/source_tokens", "/source_offsets", *columns[0], *columns[1], ids);
      add_sequences(arrays, "/target_tokens", "/target_offsets", *columns[2], *columns[3], ids);
      return arrays;
    case SampleLayout::blocks:
      arrays.push_back(
          blocks_of(columns[0], sample_shape[0], ids, sample_count(task, columns, sample_shape)));
      return arrays;
    case SampleLayout::dense:
      break;
  }
  arrays.push_back(rows_of("/inputs", columns[0], sample_shape, ids));
  const auto& target = columns[1]->row_shape();
  const auto several = target.size() > 1 || element_count(target) > 1;
  arrays.push_back(rows_of("/targets", columns[1], several ? target : std::vector<std::int64_t>(), ids));
  if (columns.size() > 2) arrays.push_back(rows_of("/sites", columns[2], {}, ids));
  return arrays;
}

std::int64_t sample_count(std::string_view task, const std::vector<ColumnPointer>& columns,
                          const std::vector<std::int64_t>& sample_shape) {
  switch (layout_of_task(task)) {
    case SampleLayout::text:
      return columns[2]->rows();
    case SampleLayout::pairs:
      return columns[1]->rows() - 1;
    case SampleLayout::blocks:
      return std::max<std::int64_t>(0, (columns[0]->rows() - 1) / sample_shape[0]);
    case SampleLayout::dense:
      break;
  }
  return columns[0]->rows();
}

}  // namespace dtrain::data
