// A shard of a staged table: its attributes, where its arrays lie, and their rows.
#include "data/shards/shard.hpp"

#include "columns.hpp"
#include "h5/library.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  static const fuzz::Scratch scratch;
  static h5::Library library;
  return fuzz::expect_refusal(ExitCode::data, [&] {
    const auto file = scratch.file("train-00000-of-00001.h5", data, size);
    data::check_shard(file, {.dataset = "t", .split = "train", .first_sample = 0, .samples = 4}, library);
    const data::ColumnOptions options{.whole_bytes = std::size_t{1} << 20};
    const data::ColumnOptions once{.whole_bytes = std::size_t{1} << 20, .few_reads = true};
    const std::vector<data::ArrayRequest> arrays = {
        {"/inputs", {data::ElementType::uint8, data::ElementType::float32}},
        {"/targets", {data::ElementType::int64, data::ElementType::float32}}};
    for (const auto& how : {options, once})
      for (const auto& column : data::open_columns(file, arrays, library, how)) fuzz::read_some(*column);
  });
}
