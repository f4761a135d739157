// dataset.json: read with every field checked, written last and whole.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "core/checked_bytes.hpp"
#include "core/error.hpp"
#include "core/nesting.hpp"
#include "core/outside.hpp"
#include "core/printable.hpp"
#include "core/regular_file.hpp"
#include "data/formats/dates.hpp"
#include "data/shards/dataset.hpp"
#include "data/shards/dataset_folder.hpp"
#include "data/synthetic/synthetic.hpp"
#include "data/text/base64.hpp"
#include "data/text/sentencepiece_model.hpp"

namespace dtrain::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFileName = "dataset.json";
constexpr std::string_view kFormat = "dtrain.dataset";
constexpr int kVersion = 1;
constexpr std::size_t kMostInfoBytes = std::size_t{64} << 20;  // a vocabulary and its tokeniser take a few
constexpr std::array<std::string_view, 3> kSplits = {"train", "validation", "test"};
constexpr std::int64_t kMostSampleBytes = std::int64_t{1} << 40;
constexpr std::string_view kStageAgain = "stage the dataset again";

/// A JSON object of one file, whose fields are asked for by name and type.
class Fields {
 public:
  Fields(const Json& object, std::string file, std::string where)
      : object_(object), file_(std::move(file)), where_(std::move(where)) {
    if (!object.is_object())
      throw error(where_.empty() ? "is not a JSON object" : where_ + " is not an object");
  }

  Error error(std::string_view problem) const { return data_error(problem, file_, kStageAgain); }

  bool has(const std::string& key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  const Json& json(const std::string& key) const {
    if (!object_.contains(key)) throw error("has no field " + where_ + key);
    return object_.at(key);
  }

  template <typename T>
  T get(const std::string& key) const {
    try {
      return json(key).get<T>();
    } catch (const Json::exception&) {
      throw error("has a field " + where_ + key + " of the wrong type");
    }
  }

  std::int64_t count(const std::string& key) const {
    if (!json(key).is_number_integer() || json(key).get<std::int64_t>() < 0)
      throw error("has a field " + where_ + key + " that is not a count");
    return json(key).get<std::int64_t>();
  }

 private:
  const Json& object_;
  std::string file_;
  std::string where_;
};

Json parse(const std::filesystem::path& file) {
  const std::string text = read_regular_file(file, kMostInfoBytes, ExitCode::data);
  if (const std::string problem = refused_json(text); !problem.empty())
    throw data_error(problem, file.string(), kStageAgain);
  try {
    return Json::parse(text);
  } catch (const Json::exception&) {
    throw data_error("is not JSON", file.string(), kStageAgain);
  }
}

SplitInfo read_split(const Json& json, const std::string& name, const std::string& file) {
  const Fields fields(json, file, "splits." + name + ".");
  SplitInfo split{.samples = fields.count("samples")};
  std::int64_t sum = 0;
  for (const Json& entry : fields.json("shards")) {
    const Fields shard(entry, file, "splits." + name + ".shards.");
    split.shards.push_back({.file = shard.get<std::string>("file"), .samples = shard.count("samples")});
    if (shard.has("sha256")) split.shards.back().sha256 = shard.get<std::string>("sha256");
    // No dataset.json makes us read outside its folder.
    const std::filesystem::path path = split.shards.back().file;
    if (!is_plain_name(path.string()))
      throw fields.error("names the shard '" + printable(path.string(), 100) +
                         "', which is not a plain file name");
    sum += split.shards.back().samples;
  }
  if (sum != split.samples)
    throw fields.error("gives " + std::to_string(split.samples) + " samples to split " + name +
                       " but its shards hold " + std::to_string(sum));
  return split;
}

TokenizerInfo read_tokenizer(const Json& json, const std::string& file) {
  const Fields fields(json, file, "tokenizer.");
  TokenizerInfo tokenizer{.kind = fields.get<std::string>("kind"),
                          .vocabulary = fields.get<std::vector<std::string>>("vocabulary")};
  if (fields.has("target_vocabulary"))
    tokenizer.target_vocabulary = fields.get<std::vector<std::string>>("target_vocabulary");
  if (fields.has("blanks")) tokenizer.blanks = fields.get<std::vector<std::string>>("blanks");
  for (const auto& [key, model] :
       {std::pair{"model", &tokenizer.model}, {"target_model", &tokenizer.target_model}}) {
    if (!fields.has(key)) continue;
    const auto bytes = from_base64(fields.get<std::string>(key));
    if (!bytes) throw fields.error(std::string("has a field tokenizer.") + key + " that is not base64");
    *model = *bytes;
  }
  if (tokenizer.kind == "sentencepiece") {  // here, so that no training begins whose model reads no text
    require_pieces(tokenizer.model, tokenizer.vocabulary);
    if (!tokenizer.target_vocabulary.empty())
      require_pieces(tokenizer.target_model, tokenizer.target_vocabulary);
  }
  return tokenizer;
}

InputColumn read_column(const Json& json, const std::string& file) {
  const Fields fields(json, file, "columns.");
  InputColumn column{.name = fields.get<std::string>("name")};
  if (fields.has("label")) column.label = fields.get<std::string>("label");
  if (fields.has("other")) column.other = fields.get<std::string>("other");
  if (fields.has("part")) column.part = fields.get<std::string>("part");
  if (!column.part.empty() && !is_date_part(column.part))
    throw fields.error("has a column with the unknown part '" + printable(column.part, 40) + "' of a date");
  if (fields.has("marks_gaps")) column.marks_gaps = fields.get<bool>("marks_gaps");
  if (fields.has("filled_with")) column.filled_with = fields.get<double>("filled_with");
  if (fields.has("shift")) column.shift = fields.get<double>("shift");
  if (fields.has("scale")) column.scale = fields.get<double>("scale");
  return column;
}

Json to_json(const InputColumn& column) {
  Json json = {{"name", column.name}};
  if (!column.label.empty()) json["label"] = column.label;
  if (!column.other.empty()) json["other"] = column.other;
  if (!column.part.empty()) json["part"] = column.part;
  if (column.marks_gaps) {
    json["marks_gaps"] = true;
    return json;
  }
  json["filled_with"] = column.filled_with;
  json["shift"] = column.shift;
  json["scale"] = column.scale;
  return json;
}

TargetScale read_target_scale(const Json& json, const std::string& file) {
  const Fields fields(json, file, "target_scales.");
  const TargetScale scale{.shift = fields.get<double>("shift"), .scale = fields.get<double>("scale")};
  constexpr double kMost = std::numeric_limits<float>::max();
  const bool divides = scale.scale > 0 && scale.scale <= kMost && std::isfinite(1 / scale.scale);
  if (!(std::abs(scale.shift) <= kMost) || !divides)
    throw fields.error("has a target that is scaled in a way that cannot be");
  return scale;
}

InputInfo read_input(const Json& json, const std::string& file) {
  const Fields fields(json, file, "inputs.");
  InputInfo input{.name = fields.get<std::string>("name"),
                  .shape = fields.get<std::vector<std::int64_t>>("shape")};
  if (fields.has("ids")) input.ids = fields.get<std::int64_t>("ids");
  if (fields.has("bytes")) input.bytes = fields.get<bool>("bytes");
  return input;
}

/// Together they are the row that a sample is.
void check_inputs(const DatasetInfo& info, const Fields& fields) {
  if (info.inputs.empty()) return;
  std::int64_t elements = 0;
  for (const InputInfo& input : info.inputs) {
    const auto bytes = checked_bytes(input.shape, 1, kMostSampleBytes);
    const bool sized = std::ranges::all_of(input.shape, [](std::int64_t extent) { return extent >= 1; });
    if (!bytes || !sized || input.ids < 0)
      throw fields.error("has an input '" + printable(input.name, 100) + "' of impossible shape");
    elements += *bytes;
  }
  if (info.shape.size() != 1 || info.shape[0] != elements || info.tokenizer)
    throw fields.error("describes inputs of " + std::to_string(elements) +
                       " numbers, and its samples have another number");
}

/// A class for each of a sample's places.
void check_places(const DatasetInfo& info, const Fields& fields) {
  if (info.target_shape.empty()) return;
  const bool dense = info.task == "image_classification" || info.task == "table_classification";
  const bool sized = info.target_shape.size() == 2 &&
                     std::ranges::all_of(info.target_shape, [](std::int64_t n) { return n >= 1; });
  if (!dense || !sized || !checked_bytes(info.target_shape, sizeof(double), kMostSampleBytes))
    throw fields.error("has a target_shape that is not the [H, W] of a class for each place");
}

void check_values(const DatasetInfo& info, const Fields& fields) {
  // Copies of the dataset are named after it: a name that is a path would lead elsewhere.
  if (!is_plain_name(info.name))
    throw fields.error("has the name '" + printable(info.name, 100) + "', which is not a plain folder name");
  const auto& tasks = synthetic_tasks();  // every task there is has a synthetic set
  if (std::find(tasks.begin(), tasks.end(), info.task) == tasks.end())
    throw fields.error("has the unknown task '" + info.task + "'");
  for (const Json& extent : fields.json("shape"))
    if (!extent.is_number_integer()) throw fields.error("has a shape whose dims are not whole numbers");
  if (std::any_of(info.shape.begin(), info.shape.end(), [](std::int64_t n) { return n < 1; }))
    throw fields.error("has a shape with a dim below 1");
  if (!checked_bytes(info.shape, sizeof(double), kMostSampleBytes))
    throw fields.error("has a shape of more values than a sample can have");
  const bool classifies = info.task.ends_with("classification");
  if (classifies && info.classes.size() < 2)
    throw fields.error("has " + std::to_string(info.classes.size()) +
                       " classes, and a classification needs two");
  if (!info.columns.empty() &&
      (info.shape.size() != 1 || static_cast<std::int64_t>(info.columns.size()) != info.shape[0]))
    throw fields.error("describes " + std::to_string(info.columns.size()) +
                       " columns, and its samples have another number of inputs");
  check_inputs(info, fields);
  if (!info.targets.empty() && info.task != "regression")
    throw fields.error("has several targets, and its task is " + info.task);
  if (!info.target_scales.empty() &&
      (info.task != "regression" ||
       static_cast<std::int64_t>(info.target_scales.size()) != info.target_count()))
    throw fields.error("scales another number of targets than its samples have");
  check_places(info, fields);
  if (info.mean.size() != info.std_dev.size()) throw fields.error("has mean and std of different lengths");
  if (std::any_of(info.std_dev.begin(), info.std_dev.end(),
                  [](double s) { return !(s > 0) || !std::isfinite(static_cast<float>(1 / s)); }))
    throw fields.error("has a std that cannot be divided by");
  const bool images = info.task == "image_classification";
  if (images && (info.shape.size() != 3 || info.classes.empty()))
    throw fields.error("needs a shape [C, H, W] and classes for images");
  if (images && !info.mean.empty() && static_cast<std::int64_t>(info.mean.size()) != info.shape[0])
    throw fields.error("has a mean for " + std::to_string(info.mean.size()) + " channels but images of " +
                       std::to_string(info.shape[0]));
  if (info.samples("train") == 0) throw fields.error("has no training samples");
}

Json to_json(const DatasetInfo& info) {
  Json splits = Json::object();
  for (const std::string_view name : kSplits) {
    const auto found = info.splits.find(std::string(name));
    if (found == info.splits.end()) continue;
    Json shards = Json::array();
    for (const ShardInfo& shard : found->second.shards)
      shards.push_back({{"file", shard.file}, {"samples", shard.samples}, {"sha256", shard.sha256}});
    splits[found->first] = {{"samples", found->second.samples}, {"shards", shards}};
  }
  Json sources = Json::array();
  for (const SourceInfo& source : info.sources)
    sources.push_back({{"file", source.file}, {"sha256", source.sha256}});
  Json tokenizer = nullptr;
  if (info.tokenizer) {
    tokenizer = {{"kind", info.tokenizer->kind}, {"vocabulary", info.tokenizer->vocabulary}};
    if (!info.tokenizer->target_vocabulary.empty())
      tokenizer["target_vocabulary"] = info.tokenizer->target_vocabulary;
    if (!info.tokenizer->blanks.empty()) tokenizer["blanks"] = info.tokenizer->blanks;
    if (!info.tokenizer->model.empty()) tokenizer["model"] = to_base64(info.tokenizer->model);
    if (!info.tokenizer->target_model.empty())
      tokenizer["target_model"] = to_base64(info.tokenizer->target_model);
  }
  Json json = {{"format", kFormat}, {"version", kVersion},     {"name", info.name},
               {"task", info.task}, {"classes", info.classes}, {"shape", info.shape},
               {"mean", info.mean}, {"std", info.std_dev},     {"tokenizer", tokenizer}};
  // Only some tables have these.
  for (const InputColumn& column : info.columns) json["columns"].push_back(to_json(column));
  if (!info.ignored_columns.empty()) json["ignored_columns"] = info.ignored_columns;
  if (!info.na_values.empty()) json["na_values"] = info.na_values;
  for (const InputInfo& input : info.inputs) {
    Json& entry =
        json["inputs"].emplace_back(Json{{"name", input.name}, {"shape", input.shape}, {"ids", input.ids}});
    if (input.bytes) entry["bytes"] = true;
  }
  if (!info.targets.empty()) json["targets"] = info.targets;
  for (const TargetScale& target : info.target_scales)
    json["target_scales"].push_back({{"shift", target.shift}, {"scale", target.scale}});
  if (!info.target_shape.empty()) json["target_shape"] = info.target_shape;
  if (!info.sites.empty()) json["sites"] = info.sites;
  json["seed"] = info.seed;
  json["splits"] = splits;
  json["sources"] = sources;
  return json;
}

DatasetInfo read_checked(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    throw data_error("there is no such dataset folder", folder.string(),
                     "check --dataset and --data-root, or stage it with 'dtrain stage'");
  const std::filesystem::path path = folder / kFileName;
  const std::string file = path.string();
  if (!std::filesystem::exists(path, ignored))
    throw data_error("has no dataset.json, so it is not a staged dataset or its staging was not finished",
                     folder.string(), kStageAgain);
  const Json json = parse(path);
  const Fields fields(json, file, "");
  if (fields.get<std::string>("format") != kFormat)
    throw fields.error("has another format than " + std::string(kFormat));
  if (fields.count("version") != kVersion)
    throw fields.error("has version " + std::to_string(fields.count("version")) + " but this dtrain reads " +
                       std::to_string(kVersion));
  DatasetInfo info;
  info.name = fields.get<std::string>("name");
  info.task = fields.get<std::string>("task");
  info.shape = fields.get<std::vector<std::int64_t>>("shape");
  if (fields.has("classes")) info.classes = fields.get<std::vector<std::string>>("classes");
  if (fields.has("targets")) info.targets = fields.get<std::vector<std::string>>("targets");
  if (fields.has("target_scales"))
    for (const Json& target : fields.json("target_scales"))
      info.target_scales.push_back(read_target_scale(target, file));
  if (fields.has("target_shape")) info.target_shape = fields.get<std::vector<std::int64_t>>("target_shape");
  if (fields.has("mean")) info.mean = fields.get<std::vector<double>>("mean");
  if (fields.has("std")) info.std_dev = fields.get<std::vector<double>>("std");
  if (fields.has("tokenizer")) info.tokenizer = read_tokenizer(fields.json("tokenizer"), file);
  if (fields.has("columns"))
    for (const Json& column : fields.json("columns")) info.columns.push_back(read_column(column, file));
  if (fields.has("ignored_columns"))
    info.ignored_columns = fields.get<std::vector<std::string>>("ignored_columns");
  if (fields.has("na_values")) info.na_values = fields.get<std::vector<std::string>>("na_values");
  if (fields.has("inputs"))
    for (const Json& input : fields.json("inputs")) info.inputs.push_back(read_input(input, file));
  if (fields.has("sites")) info.sites = fields.get<std::vector<std::string>>("sites");
  if (fields.has("seed")) info.seed = fields.get<std::uint64_t>("seed");
  const Fields splits(fields.json("splits"), file, "splits");
  for (const auto& [name, split] : fields.json("splits").items()) {
    if (std::find(kSplits.begin(), kSplits.end(), name) == kSplits.end())
      throw fields.error("has the split '" + name + "', which is not train, validation or test");
    info.splits[name] = read_split(split, name, file);
  }
  if (fields.has("sources"))
    for (const Json& entry : fields.json("sources")) {
      const Fields source(entry, file, "sources.");
      info.sources.push_back({source.get<std::string>("file"), source.get<std::string>("sha256")});
    }
  check_values(info, fields);
  return info;
}

}  // namespace

std::int64_t DatasetInfo::samples(const std::string& split) const {
  const auto found = splits.find(split);
  return found == splits.end() ? 0 : found->second.samples;
}

DatasetInfo read_dataset_info(const std::filesystem::path& folder) {
  const ErrorContext context{
      .subject = (folder / kFileName).string(), .advice = std::string(kStageAgain), .code = ExitCode::data};
  return understand_from_outside(context, [&] { return read_checked(folder); });
}

std::string dataset_info_text(const DatasetInfo& info) {
  std::string text = to_json(info).dump(2) + '\n';
  std::string problem = refused_json(text);
  if (text.size() > kMostInfoBytes)
    problem = fmt::format("would take {} MiB, and may take {}", text.size() >> 20, kMostInfoBytes >> 20);
  if (!problem.empty())
    throw data_error(
        "its vocabulary or its list of columns " + problem, info.name,
        "stage fewer: say --vocab-size or --min-frequency for words, --ignore for a table's columns");
  return text;
}

void write_dataset_info(const std::filesystem::path& folder, const DatasetInfo& info) {
  const std::filesystem::path path = folder / kFileName;
  const std::filesystem::path aside = path.string() + ".partial";
  const std::string text = dataset_info_text(info);
  {
    std::ofstream stream(aside, std::ios::trunc);
    stream << text;
    stream.close();
    if (!stream)
      throw data_error("cannot be written", aside.string(), "free some space or check permissions");
  }
  std::error_code failure;
  std::filesystem::rename(aside, path, failure);
  if (failure) throw data_error("cannot be written", path.string(), failure.message());
}

}  // namespace dtrain::data
