#include "checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "checkpoint/file_io.hpp"
#include "checkpoint/manifest_check.hpp"
#include "core/error.hpp"
#include "core/nesting.hpp"
#include "core/outside.hpp"
#include "core/sha256.hpp"
#include "core/whole_number.hpp"

namespace dtrain::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr const char* kFormat = "dtrain.checkpoint";
constexpr const char* kTakeAnother = "take another checkpoint";

Json to_json(const TensorEntry& tensor) {
  Json slices = Json::array();
  for (const auto& slice : tensor.slices) {
    slices.push_back({{"file", slice.file}, {"offset", slice.offset}, {"shape", slice.shape}});
    if (!slice.dataset.empty()) slices.back()["dataset"] = slice.dataset;
  }
  return {
      {"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"slices", std::move(slices)}};
}

Json to_json(const EpochProgress& so_far) {
  Json json = {{"loss", so_far.loss},
               {"weight", so_far.weight},
               {"correct", so_far.correct},
               {"counted", so_far.counted},
               {"train_time_s", so_far.train_time_s},
               {"sample_hash", so_far.sample_hash},
               {"evaluated", so_far.evaluated},
               {"samples", so_far.samples},
               {"learning_rate", so_far.learning_rate}};
  if (!so_far.staleness.empty()) json["staleness"] = so_far.staleness;
  if (so_far.virtual_time_s > 0) json["virtual_time_s"] = so_far.virtual_time_s;
  if (const auto& round = so_far.round) {
    json["round"] = {{"sampled", round->sampled},
                     {"handed_in", round->handed_in},
                     {"samples", round->samples},
                     {"update_norm", round->update_norm}};
  }
  return json;
}

/// A number that was not finite has become null.
double number(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

std::int64_t whole(const Json& json) {
  if (const auto number = whole_number(json)) return *number;
  throw checkpoint_error("has something else where a whole number belongs", "manifest.json", kTakeAnother);
}

std::vector<std::int64_t> whole_numbers(const Json& json) {
  std::vector<std::int64_t> values;
  for (const auto& value : json.get<std::vector<Json>>()) values.push_back(whole(value));
  return values;
}

std::uint64_t not_negative(const Json& json) {
  if (!json.is_number_unsigned())
    throw checkpoint_error("has something else where a number that is not negative belongs", "manifest.json",
                           kTakeAnother);
  return json.get<std::uint64_t>();
}

EpochProgress progress_from(const Json& json) {
  EpochProgress so_far{.loss = number(json.at("loss")),
                       .weight = json.at("weight").get<double>(),
                       .correct = json.at("correct").get<double>(),
                       .counted = json.at("counted").get<double>(),
                       .train_time_s = json.at("train_time_s").get<double>(),
                       .sample_hash = not_negative(json.at("sample_hash")),
                       .evaluated = json.at("evaluated").get<bool>(),
                       .samples = json.value("samples", 0.0),
                       .learning_rate = json.value("learning_rate", 0.0)};
  if (json.contains("staleness")) so_far.staleness = whole_numbers(json.at("staleness"));
  so_far.virtual_time_s = json.value("virtual_time_s", 0.0);
  if (json.contains("round")) {
    const auto& round = json.at("round");
    so_far.round = {.sampled = whole(round.at("sampled")),
                    .handed_in = whole(round.at("handed_in")),
                    .samples = whole(round.at("samples")),
                    .update_norm = number(round.at("update_norm"))};
  }
  return so_far;
}

Json to_json(const Transformations& transformations) {
  Json json = {{"mean", transformations.mean}, {"std", transformations.std_dev}, {"columns", Json::array()}};
  for (const auto& column : transformations.columns) {
    json["columns"].push_back({{"name", column.name},
                               {"label", column.label},
                               {"marks_gaps", column.marks_gaps},
                               {"filled_with", column.filled_with},
                               {"shift", column.shift},
                               {"scale", column.scale}});
    if (!column.other.empty()) json["columns"].back()["other"] = column.other;
    if (!column.part.empty()) json["columns"].back()["part"] = column.part;
  }
  if (!transformations.ignored_columns.empty()) json["ignored_columns"] = transformations.ignored_columns;
  if (!transformations.na_values.empty()) json["na_values"] = transformations.na_values;
  for (const auto& target : transformations.targets)
    json["targets"].push_back({{"shift", target.shift}, {"scale", target.scale}});
  return json;
}

Transformations transformations_from(const Json& json) {
  Transformations found;
  json.at("mean").get_to(found.mean);
  json.at("std").get_to(found.std_dev);
  for (const auto& column : json.at("columns")) {
    found.columns.push_back({.name = column.at("name").get<std::string>(),
                             .label = column.at("label").get<std::string>(),
                             .other = column.value("other", std::string()),
                             .part = column.value("part", std::string()),
                             .marks_gaps = column.at("marks_gaps").get<bool>(),
                             .filled_with = column.at("filled_with").get<double>(),
                             .shift = column.at("shift").get<double>(),
                             .scale = column.at("scale").get<double>()});
  }
  if (json.contains("ignored_columns")) json.at("ignored_columns").get_to(found.ignored_columns);
  if (json.contains("na_values")) json.at("na_values").get_to(found.na_values);
  if (json.contains("targets")) {
    for (const auto& target : json.at("targets"))
      found.targets.push_back(
          {.shift = target.at("shift").get<double>(), .scale = target.at("scale").get<double>()});
  }
  return found;
}

Json to_json(const Manifest& manifest) {
  const CheckpointInfo& info = manifest.info;
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"step", info.step},
               {"epoch", info.epoch},
               {"position", {{"samples", info.position_samples}}},
               {"total_steps", info.total_steps},
               {"so_far", to_json(info.so_far)},
               {"best", {{"step", info.best.step}, {"loss", info.best.loss}}},
               {"model", info.model},
               {"dataset", info.dataset},
               {"seed", info.seed},
               {"micro_batches", info.micro_batches},
               {"config", info.config},
               {"dtrain_version", info.dtrain_version},
               {"files", Json::array()},
               {"tensors", Json::array()}};
  if (!std::isnan(info.best.accuracy)) json["best"]["accuracy"] = info.best.accuracy;
  if (info.loss_scale.scale > 0 || info.loss_scale.left_out != 0) {
    const auto& scale = info.loss_scale;
    json["loss_scale"] = {
        {"scale", scale.scale}, {"good_steps", scale.good_steps}, {"left_out", scale.left_out}};
  }
  if (!info.vocabulary.all.empty()) json["vocabulary_sha256"] = info.vocabulary.all;
  if (!info.vocabulary.source.empty()) json["source_vocabulary_sha256"] = info.vocabulary.source;
  if (!info.vocabulary.target.empty()) json["target_vocabulary_sha256"] = info.vocabulary.target;
  if (info.transformations) json["transformations"] = to_json(*info.transformations);
  if (!info.identity.sha256.empty()) {
    json["dataset_samples"] = info.identity.samples;
    json["dataset_sha256"] = info.identity.sha256;
    if (!info.identity.classes.empty()) json["dataset_classes"] = info.identity.classes;
    if (!info.identity.targets.empty()) json["dataset_targets"] = info.identity.targets;
    if (!info.identity.task.empty()) {
      json["dataset_task"] = info.identity.task;
      json["dataset_shape"] = info.identity.shape;
      if (!info.identity.target_shape.empty()) json["dataset_target_shape"] = info.identity.target_shape;
      for (const NamedInput& input : info.identity.inputs) {
        auto& entry = json["dataset_inputs"].emplace_back(
            Json{{"name", input.name}, {"shape", input.shape}, {"ids", input.ids}});
        if (input.bytes) entry["bytes"] = true;
      }
    }
  }
  if (!info.all_reduce.layout.empty()) {
    json["all_reduce"] = {{"layout", info.all_reduce.layout}, {"by_size", info.all_reduce.by_size}};
  }
  if (!info.program.empty()) json["program_sha256"] = info.program;
  if (!info.tied.empty()) json["tied"] = info.tied;
  for (const auto& file : manifest.files) {
    json["files"].push_back({{"file", file.file}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  for (const auto& tensor : manifest.tensors) json["tensors"].push_back(to_json(tensor));
  return json;
}

/// A name that stays inside the checkpoint's folder.
std::string plain_name(const Json& json) {
  const auto name = json.get<std::string>();
  const bool plain = !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..";
  if (!plain)
    throw checkpoint_error(fmt::format("lists the file \"{}\"", name), "manifest.json", kTakeAnother);
  return name;
}

Manifest from_json(const Json& json) {
  Manifest manifest;
  CheckpointInfo& info = manifest.info;
  info.step = whole(json.at("step"));
  info.epoch = whole(json.at("epoch"));
  info.position_samples = whole(json.at("position").at("samples"));
  if (json.contains("total_steps")) info.total_steps = whole(json.at("total_steps"));
  if (json.contains("so_far")) info.so_far = progress_from(json.at("so_far"));
  if (json.contains("best")) {
    const auto& best = json.at("best");
    info.best = {.step = whole(best.at("step")), .loss = number(best.at("loss"))};
    if (best.contains("accuracy")) info.best.accuracy = best.at("accuracy").get<double>();
  }
  if (json.contains("loss_scale")) {
    const auto& saved = json.at("loss_scale");
    info.loss_scale = {.scale = saved.at("scale").get<double>(),
                       .good_steps = whole(saved.at("good_steps")),
                       .left_out = saved.contains("left_out") ? whole(saved.at("left_out")) : 0};
  }
  json.at("model").get_to(info.model);
  json.at("dataset").get_to(info.dataset);
  info.seed = not_negative(json.at("seed"));
  info.micro_batches = static_cast<int>(
      std::clamp<std::int64_t>(whole(json.at("micro_batches")), 0, std::numeric_limits<int>::max()));
  json.at("config").get_to(info.config);
  json.at("dtrain_version").get_to(info.dtrain_version);
  info.vocabulary = {.all = json.value("vocabulary_sha256", std::string()),
                     .source = json.value("source_vocabulary_sha256", std::string()),
                     .target = json.value("target_vocabulary_sha256", std::string())};
  if (json.contains("transformations")) {
    info.transformations = transformations_from(json.at("transformations"));
  }
  if (json.contains("dataset_sha256")) {
    for (const auto& [split, samples] : json.at("dataset_samples").items())
      info.identity.samples[split] = whole(samples);
    json.at("dataset_sha256").get_to(info.identity.sha256);
    if (json.contains("dataset_classes")) json.at("dataset_classes").get_to(info.identity.classes);
    if (json.contains("dataset_targets")) json.at("dataset_targets").get_to(info.identity.targets);
    if (json.contains("dataset_task")) {
      json.at("dataset_task").get_to(info.identity.task);
      info.identity.shape = whole_numbers(json.at("dataset_shape"));
      if (json.contains("dataset_target_shape"))
        info.identity.target_shape = whole_numbers(json.at("dataset_target_shape"));
      if (json.contains("dataset_inputs")) {
        for (const auto& input : json.at("dataset_inputs")) {
          info.identity.inputs.push_back({.name = input.at("name").get<std::string>(),
                                          .shape = whole_numbers(input.at("shape")),
                                          .ids = whole(input.at("ids")),
                                          .bytes = input.value("bytes", false)});
        }
      }
    }
  }
  if (json.contains("all_reduce")) {
    const auto& saved = json.at("all_reduce");
    info.all_reduce = {.layout = saved.at("layout").get<std::string>(),
                       .by_size = saved.at("by_size").get<std::string>()};
  }
  info.program = json.value("program_sha256", std::string());
  if (json.contains("tied")) json.at("tied").get_to(info.tied);
  for (const auto& file : json.at("files")) {
    manifest.files.push_back({.file = plain_name(file.at("file")),
                              .bytes = whole(file.at("bytes")),
                              .sha256 = file.at("sha256").get<std::string>()});
  }
  for (const auto& tensor : json.at("tensors")) {
    TensorEntry entry;
    tensor.at("name").get_to(entry.name);
    tensor.at("dtype").get_to(entry.dtype);
    entry.shape = whole_numbers(tensor.at("shape"));
    for (const auto& slice : tensor.at("slices")) {
      entry.slices.push_back({.file = plain_name(slice.at("file")),
                              .offset = whole_numbers(slice.at("offset")),
                              .shape = whole_numbers(slice.at("shape")),
                              .dataset = slice.value("dataset", "")});
    }
    manifest.tensors.push_back(std::move(entry));
  }
  return manifest;
}

constexpr std::uint64_t kLongestSum = 4096;

/// As sha256sum writes and checks it.
std::string checksum_line(const std::string& text) { return sha256_of(text) + "  manifest.json\n"; }

void check_format(const Json& json, const std::string& file) {
  if (json.at("format") != kFormat)
    throw checkpoint_error("is not a checkpoint's manifest", file, kTakeAnother);
  const std::int64_t version = whole(json.at("version"));
  if (version == kVersion) return;
  throw checkpoint_error(fmt::format("has version {}, this dtrain reads {}", version, kVersion), file,
                         "use the dtrain that wrote it");
}

}  // namespace

std::int64_t TensorEntry::bytes() const {
  return std::accumulate(shape.begin(), shape.end(), element_bytes(dtype), std::multiplies<>());
}

const TensorEntry* Manifest::find(const std::string& name) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& entry) { return entry.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

ElementType element_type_of(const std::string& dtype) {
  const ElementFacts* const facts = find_element_type(&ElementFacts::name, dtype);
  if (facts != nullptr && facts->in_checkpoints) return facts->type;
  throw checkpoint_error("checkpoints have no tensors of this type", dtype.empty() ? "an empty type" : dtype,
                         "use a dtrain that has them");
}

std::int64_t element_bytes(const std::string& dtype) {
  return static_cast<std::int64_t>(dtrain::element_bytes(element_type_of(dtype)));
}

std::string step_folder(std::int64_t step) { return fmt::format("step-{:08}", step); }

std::string manifest_text(const Manifest& manifest) { return to_json(manifest).dump(1) + "\n"; }

Manifest parse_manifest(const std::string& text, const std::string& file) {
  if (const auto problem = refused_json(text); !problem.empty())
    throw checkpoint_error(problem, file, kTakeAnother);
  const ErrorContext context{.subject = file, .advice = kTakeAnother, .code = ExitCode::checkpoint};
  return understand_from_outside(context, [&] {
    const Json json = Json::parse(text);
    check_format(json, file);
    return from_json(json);
  });
}

void write_manifest(const std::filesystem::path& folder, const Manifest& manifest) {
  try {
    check_sense(manifest, (folder / "manifest.json").string());
  } catch (const Error& error) {
    throw checkpoint_error("could not be read again: it " + error.problem(), error.subject(),
                           "give the parts of the network shorter names");
  }
  const std::string text = manifest_text(manifest);
  write_text(folder / "manifest.json", text);
  write_text(folder / "manifest.sha256", checksum_line(text));
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const auto file = folder / "manifest.json";
  if (!std::filesystem::exists(folder))
    throw checkpoint_error("there is no such checkpoint", folder.string(),
                           "name a folder such as runs/NAME/checkpoints/best");
  if (!std::filesystem::exists(file) || !std::filesystem::exists(folder / "manifest.sha256")) {
    throw checkpoint_error("is not a whole checkpoint: manifest.json or manifest.sha256 is missing",
                           folder.string(), "name a folder such as runs/NAME/checkpoints/best");
  }
  const std::string text = read_text(file);
  const std::string sum = read_text(folder / "manifest.sha256", kLongestSum);
  if (sum != checksum_line(text)) {
    throw checkpoint_error("is damaged: its SHA-256 is not that of manifest.sha256", file.string(),
                           kTakeAnother);
  }
  Manifest manifest = parse_manifest(text, file.string());
  check_sense(manifest, file.string());
  return manifest;
}

}  // namespace dtrain::checkpoint
