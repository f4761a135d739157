#include "data/unlabelled/unlabelled.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "core/printable.hpp"
#include "core/regular_file.hpp"
#include "data/formats/image_folder.hpp"
#include "data/formats/npy.hpp"
#include "data/formats/text_csv.hpp"
#include "data/formats/text_files.hpp"
#include "data/import/check_values.hpp"
#include "data/sample_sources.hpp"
#include "data/text/blanks.hpp"
#include "data/text/tokenizer.hpp"
#include "data/unlabelled/new_inputs.hpp"
#include "data/unlabelled/new_table.hpp"
#include "data/unlabelled/pixel_scale.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;
using Columns = std::vector<std::shared_ptr<const Column>>;

constexpr std::size_t kLargestText = std::size_t{4} << 30;

std::string shape_in_words(const std::vector<std::int64_t>& shape) {
  return fmt::format("[n, {}]", fmt::join(shape, ", "));
}

/// Targets that stand for those that are not known.
std::shared_ptr<const Column> no_targets(const DatasetInfo& trained, std::int64_t samples) {
  const auto n = static_cast<std::size_t>(samples);
  if (!trained.targets.empty())
    return column_from(std::vector<float>(n * trained.targets.size()), {trained.target_count()});
  if (trained.task == "regression") return column_from(std::vector<float>(n), {});
  const auto places = static_cast<std::size_t>(element_count(trained.target_shape));
  return column_from(std::vector<std::int64_t>(n * places), trained.target_shape);
}

/// Rows of numbers that have no names: only where each input was a number of the original's.
void require_plain_inputs(const DatasetInfo& trained, const fs::path& from) {
  const auto made = std::ranges::find_if(trained.columns, [](const auto& input) {
    return input.marks_gaps || !input.label.empty() || !input.part.empty();
  });
  if (made == trained.columns.end()) return;
  throw data_error(fmt::format("is an array, and the column {} of the training had {}", made->name,
                               made->marks_gaps       ? "gaps"
                               : !made->label.empty() ? "labels"
                                                      : "dates"),
                   from.string(), "give a CSV file with the training's columns");
}

/// (x - shift) / scale of each column of float64 rows.
std::shared_ptr<const Column> scaled(const Column& rows, const std::vector<InputColumn>& columns) {
  const auto values = read_whole<double>(rows);
  std::vector<float> inputs(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const InputColumn& column = columns[i % columns.size()];
    inputs[i] = static_cast<float>((values[i] - column.shift) / column.scale);
  }
  return column_from(inputs, rows.row_shape());
}

/// Grey images [n, H, W] as [n, 1, H, W].
std::shared_ptr<const Column> with_channel(const Column& rows, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> whole = {rows.rows()};
  whole.insert(whole.end(), shape.begin(), shape.end());
  HostArray array;
  array.reset(rows.type(), whole);
  rows.read(0, rows.rows(), static_cast<std::byte*>(array.data()));
  return MemoryColumn::of(std::move(array));
}

std::shared_ptr<const Column> read_array(const DatasetInfo& trained, const fs::path& from) {
  const bool images = trained.task == "image_classification";
  const bool named = !trained.columns.empty();
  std::vector<ElementType> accepted = {named ? ElementType::float64 : ElementType::float32};
  const bool pixels = trained.shape.size() == 3 && !named;
  if (pixels) accepted.push_back(ElementType::uint8);
  auto rows = open_npy(from, accepted);
  auto shape = rows->row_shape();
  if (pixels && shape.size() == 2) shape.insert(shape.begin(), 1);
  if (pixels && !images && rows->type() == ElementType::uint8)
    throw data_error(
        "is an array of bytes, and the checkpoint does not say what a training on images of a "
        "regression made of bytes",
        from.string(), "give float32 numbers: of a training on bytes those divided by 255");
  if (shape != trained.shape)
    throw data_error(fmt::format("has samples of shape {}, and the training's had {}",
                                 shape_in_words(rows->row_shape()), shape_in_words(trained.shape)),
                     from.string(), "give samples like those of the training");
  if (rows->rows() == 0) throw data_error("holds no samples", from.string(), "give at least one");
  if (!images) require_plain_inputs(trained, from);
  if (named) rows = scaled(*rows, trained.columns);
  const Columns both = {rows, no_targets(trained, rows->rows())};
  value_check(trained)(both, from.string());
  if (images) require_scale_of_training(trained, *rows, from.string());
  return pixels && rows->row_shape() != shape ? with_channel(*rows, shape) : rows;
}

/// The tokens of each line, or of each row of a CSV file that a training could have been staged from: the
/// arrays of a text's samples, without targets.
Columns read_texts(const DatasetInfo& trained, const fs::path& from, std::vector<std::string>& remarks) {
  const OriginalFile file{.name = from.filename().string(),
                          .origin = from.string(),
                          .content = read_regular_file(from, kLargestText, ExitCode::data)};
  const bool rows = is_text_csv_file(file) || has_text_rows(file);
  if (rows) remarks.emplace_back("the first column has classes, as in a training's file: it is left out");
  if (!rows && file.name.ends_with(".csv"))
    remarks.emplace_back("there are no rows of a class's number and a text: each line is taken for a text");
  const auto tokenizer = make_tokenizer(trained.tokenizer.value());
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> offsets = {0};
  std::int64_t cut = 0;
  for (const std::string& text : rows ? texts_of_csv(file) : lines_of(file, BlankLines::taken)) {
    const auto ids = tokenizer->encode(with_spaces(text, trained.tokenizer->blanks));
    if (ids.empty())
      throw data_error("has no word",
                       fmt::format("{}, {} {}", from.string(), rows ? "row" : "line", offsets.size()),
                       "remove the line");
    cut += std::ssize(ids) > trained.shape[0] ? 1 : 0;
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    offsets.push_back(static_cast<std::int64_t>(tokens.size()));
  }
  if (offsets.size() == 1) throw data_error("holds no line", from.string(), "give at least one");
  if (cut > 0)
    remarks.push_back(
        fmt::format("{} of {} texts have more tokens than the training's longest, {}: what is behind those "
                    "is left out",
                    cut, std::ssize(offsets) - 1, trained.shape[0]));
  return {column_from(tokens, {}), column_from(offsets, {})};
}

Unlabelled in_memory(const DatasetInfo& trained, Columns columns, std::int64_t samples) {
  columns.push_back(no_targets(trained, samples));
  DatasetInfo info = trained;
  info.splits = {{"train", {.samples = samples, .shards = {}}}};
  info.sources.clear();
  auto source =
      make_source(trained.task, {std::move(columns)}, trained.shape, trained.name, trained.stored_target());
  return {.dataset = Dataset(std::move(info), {{"train", std::move(source)}}),
          .samples = samples,
          .names = {},
          .remarks = {}};
}

Unlabelled of_files(const DatasetInfo& trained, const fs::path& from) {
  if (trained.shape[0] != 1 && trained.shape[0] != 3)
    throw data_error(fmt::format("is no array, and the training's images had {} channels", trained.shape[0]),
                     from.string(), "write the images with numpy.save as " + shape_in_words(trained.shape));
  ImageFiles images = read_images(from, trained.shape);
  require_scale_of_training(trained, *images.pixels, from.string());
  auto found = in_memory(trained, {images.pixels}, images.pixels->rows());
  found.names = std::move(images.names);
  return found;
}

}  // namespace

Unlabelled read_unlabelled(const DatasetInfo& trained, const UnlabelledOptions& options,
                           h5::Library& library) {
  const fs::path& from = options.from;
  const bool table = trained.task == "table_classification" || trained.task == "regression";
  const bool text = trained.task == "text_classification";
  if (!table && !text && trained.task != "image_classification")
    throw usage_error(fmt::format("a model of {} says nothing of single samples", trained.task), "predict",
                      "use dtrain generate for a gpt or seq2seq; read the weights of another with dtrain "
                      "export, and do it in PyTorch");
  std::error_code ignored;
  if (!fs::exists(from, ignored))
    throw data_error("there is no such file or folder", "--from " + from.string(), "check the path");
  if (!table && !(options.ignore + options.na_values).empty())
    throw usage_error("is for tables of text", options.ignore.empty() ? "--na-values" : "--ignore",
                      "leave it out");
  if (!trained.inputs.empty()) {
    const auto rows = read_new_inputs(trained, from, options.inputs, library);
    value_check(trained)({rows, no_targets(trained, rows->rows())}, from.string());
    return in_memory(trained, {rows}, rows->rows());
  }
  if (!options.inputs.empty())
    throw usage_error("is for networks of several inputs, and this one was trained on one",
                      "--inputs " + options.inputs, "leave it out");
  if (text) {
    std::vector<std::string> remarks;
    Columns columns = read_texts(trained, from, remarks);
    const auto samples = columns[1]->rows() - 1;
    auto found = in_memory(trained, std::move(columns), samples);
    found.remarks = std::move(remarks);
    return found;
  }
  const bool array = !fs::is_directory(from, ignored) && is_npy(from);
  if (array && !(options.ignore + options.na_values).empty())
    throw usage_error("is for tables of text, and this is an array",
                      options.ignore.empty() ? "--na-values" : "--ignore", "leave it out");
  if (!array && !table) return of_files(trained, from);
  if (!array && trained.columns.empty())
    throw data_error("is no .npy array, and the training's columns had no names", from.string(),
                     "write the rows with numpy.save as float32 " + shape_in_words(trained.shape));
  std::vector<std::string> remarks;
  const auto rows = array ? read_array(trained, from) : read_new_table(trained, options, remarks);
  auto found = in_memory(trained, {rows}, rows->rows());
  found.remarks = std::move(remarks);
  return found;
}

}  // namespace dtrain::data
