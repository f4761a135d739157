#include "data/shards/column.hpp"

#include <algorithm>
#include <cstring>

#include "data/shards/rows_in_memory.hpp"

namespace dtrain::data {

Column::Column(ElementType type, std::vector<std::int64_t> row_shape, std::int64_t rows)
    : type_(type),
      row_shape_(std::move(row_shape)),
      rows_(rows),
      row_bytes_(static_cast<std::size_t>(element_count(row_shape_)) * element_bytes(type)) {}

void Column::gather(std::span<const std::int64_t> rows, std::byte* out) const {
  for (const std::int64_t row : rows) {
    read(row, 1, out);
    out += row_bytes_;
  }
}

MemoryColumn::MemoryColumn(ElementType type, std::vector<std::int64_t> row_shape, std::int64_t rows,
                           const std::byte* data, std::shared_ptr<const void> owner)
    : Column(type, std::move(row_shape), rows), data_(data), owner_(std::move(owner)) {}

std::shared_ptr<const Column> MemoryColumn::of(HostArray array) {
  auto held = std::make_shared<HostArray>(std::move(array));
  const auto& shape = held->shape();
  return std::make_shared<MemoryColumn>(held->type(),
                                        std::vector<std::int64_t>(shape.begin() + 1, shape.end()),
                                        shape.at(0), static_cast<const std::byte*>(held->data()), held);
}

void MemoryColumn::read(std::int64_t first, std::int64_t count, std::byte* out) const {
  if (count > 0 && row_bytes() > 0)  // else there is nothing at `data_`
    std::memcpy(out, data_ + static_cast<std::size_t>(first) * row_bytes(),
                static_cast<std::size_t>(count) * row_bytes());
}

void MemoryColumn::gather(std::span<const std::int64_t> rows, std::byte* out) const {
  const std::size_t bytes = row_bytes();
  copy_rows(rows, bytes, out,
            [&](std::int64_t row) { return data_ + static_cast<std::size_t>(row) * bytes; });
}

std::shared_ptr<const Column> JoinedColumn::of(std::vector<std::shared_ptr<const Column>> parts) {
  if (parts.size() == 1) return parts.front();
  return std::make_shared<JoinedColumn>(std::move(parts));
}

namespace {

std::int64_t rows_of(const std::vector<std::shared_ptr<const Column>>& parts) {
  std::int64_t rows = 0;
  for (const auto& part : parts) rows += part->rows();
  return rows;
}

}  // namespace

JoinedColumn::JoinedColumn(std::vector<std::shared_ptr<const Column>> parts)
    : Column(parts.at(0)->type(), parts.at(0)->row_shape(), rows_of(parts)), parts_(std::move(parts)) {
  std::int64_t begin = 0;
  for (const auto& part : parts_) {
    begins_.push_back(begin);
    begin += part->rows();
  }
}

std::size_t JoinedColumn::part_holding(std::int64_t row) const {
  const auto after = std::upper_bound(begins_.begin(), begins_.end(), row);
  return static_cast<std::size_t>(after - begins_.begin()) - 1;
}

void JoinedColumn::read(std::int64_t first, std::int64_t count, std::byte* out) const {
  while (count > 0) {
    const std::size_t part = part_holding(first);
    const std::int64_t inside = first - begins_[part];
    const std::int64_t taken = std::min(count, parts_[part]->rows() - inside);
    parts_[part]->read(inside, taken, out);
    first += taken;
    count -= taken;
    out += static_cast<std::size_t>(taken) * row_bytes();
  }
}

void JoinedColumn::gather(std::span<const std::int64_t> rows, std::byte* out) const {
  for (const std::int64_t row : rows) {
    const std::size_t part = part_holding(row);
    parts_[part]->read(row - begins_[part], 1, out);
    out += row_bytes();
  }
}

}  // namespace dtrain::data
