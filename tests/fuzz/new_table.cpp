// New rows for predict: the columns of the training by name, in any order. What is read is finite.
#include "data/unlabelled/new_table.hpp"

#include <cmath>

#include "data/shards/column.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  static const fuzz::Scratch scratch;
  static const data::DatasetInfo trained = {
      .columns = {{.name = "width", .filled_with = 1.5, .shift = 170, .scale = 0.01},
                  {.name = "width", .marks_gaps = true},
                  {.name = "place", .label = "north", .other = "south"},
                  {.name = "kind", .label = "red"},
                  {.name = "kind", .label = "blue"}},
      .ignored_columns = {"id"},
      .na_values = {"none"}};
  const data::UnlabelledOptions options{.from = scratch.file("new.csv", data, size), .na_values = "-999"};
  return fuzz::expect_refusal(ExitCode::data, [&] {
    std::vector<std::string> remarks;
    for (const float value : data::read_whole<float>(*data::read_new_table(trained, options, remarks)))
      if (!std::isfinite(value)) std::abort();
  });
}
