#include "state/transformations.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.hpp"
#include "data/shards/dataset_hash.hpp"

namespace dtrain::state {
namespace {

bool has_images(const data::DatasetInfo& info) { return info.task == "image_classification"; }

/// Of either kind of column.
template <class Column>
std::string in_words(const Column& column) {
  if (column.marks_gaps) return fmt::format("gaps of {}", column.name);
  if (!column.part.empty()) return fmt::format("{} of {}", column.part, column.name);
  if (column.label.empty()) return column.name;
  if (column.other.empty()) return fmt::format("{}={}", column.name, column.label);
  return fmt::format("{}={} instead of {}", column.name, column.label, column.other);
}

Error other_columns(const std::string& what, const data::DatasetInfo& info, const std::string& checkpoint) {
  return checkpoint_error(
      fmt::format("was trained on other columns than the dataset {} has: {}", info.name, what), checkpoint,
      "stage a table with the same columns, and name it with --dataset");
}

/// A dataset's columns as a checkpoint keeps them, or back.
template <class To, class From>
std::vector<To> converted(const std::vector<From>& columns) {
  std::vector<To> found;
  for (const auto& column : columns) {
    found.push_back({.name = column.name,
                     .label = column.label,
                     .other = column.other,
                     .part = column.part,
                     .marks_gaps = column.marks_gaps,
                     .filled_with = column.filled_with,
                     .shift = column.shift,
                     .scale = column.scale});
  }
  return found;
}

/// A dataset's targets as a checkpoint keeps them, or back.
template <class To, class From>
std::vector<To> scales(const std::vector<From>& targets) {
  std::vector<To> found;
  for (const auto& target : targets) found.push_back({.shift = target.shift, .scale = target.scale});
  return found;
}

/// Whether rows are as they were in the original.
template <class Columns>
bool plain(const Columns& columns) {
  return std::ranges::all_of(columns, [](const auto& column) {
    return column.shift == 0 && column.scale == 1 && !column.marks_gaps;
  });
}

void compare_columns(const checkpoint::Transformations& trained, const data::DatasetInfo& info,
                     const std::string& checkpoint) {
  const std::size_t then = trained.columns.size();
  const std::size_t now = info.columns.size();
  if (then != now) throw other_columns(fmt::format("{} inputs against {}", then, now), info, checkpoint);
  for (std::size_t i = 0; i < then; ++i) {
    const auto& a = trained.columns[i];
    const auto& b = info.columns[i];
    // Of two labels one is the input and the other its absence; checkpoints of old do not say which.
    const bool same_other = a.other == b.other || a.other.empty() || b.other.empty();
    if (a.name == b.name && a.label == b.label && a.part == b.part && a.marks_gaps == b.marks_gaps &&
        same_other)
      continue;
    throw other_columns(fmt::format("input {} was {} and is {}", i, in_words(a), in_words(b)), info,
                        checkpoint);
  }
}

/// Bytes become values in [0, 1]; floats may lie in 0 to 255, and mean nothing to a model of the others.
void compare_scales(const checkpoint::Transformations& trained, const data::DatasetInfo& info,
                    const std::string& checkpoint) {
  constexpr double kMost = 16;
  if (trained.std_dev.size() != info.std_dev.size()) return;
  for (std::size_t channel = 0; channel < info.std_dev.size(); ++channel) {
    const double then = trained.std_dev[channel];
    const double now = info.std_dev[channel];
    if (then == 1 || now == 1 || (now <= kMost * then && then <= kMost * now)) continue;  // 1: it is constant
    throw checkpoint_error(
        fmt::format("was trained on images of another scale than the dataset {} has: a deviation of {:.4g} "
                    "against {:.4g}",
                    info.name, then, now),
        checkpoint,
        "stage images of the same scale, both as bytes or both as floats, and name them with --dataset");
  }
}

/// From values made with the dataset's columns to values made with the checkpoint's.
void change_columns(InputTransformation& how, const checkpoint::Transformations& trained,
                    const data::DatasetInfo& info) {
  bool same = true;
  for (std::size_t i = 0; i < info.columns.size(); ++i) {
    const auto& to = trained.columns[i];
    const auto& from = info.columns[i];
    how.factor.push_back(from.scale / to.scale);
    how.offset.push_back((from.shift - to.shift) / to.scale);
    same = same && from.scale == to.scale && from.shift == to.shift;
    if (from.marks_gaps || from.filled_with == to.filled_with) continue;
    const auto marker = std::ranges::find_if(info.columns, [&from](const data::InputColumn& column) {
      return column.marks_gaps && column.name == from.name;
    });
    if (marker == info.columns.end()) continue;  // it has no gaps
    same = false;
    how.gaps.push_back({.input = i,
                        .marker = static_cast<std::size_t>(marker - info.columns.begin()),
                        .value = (to.filled_with - to.shift) / to.scale});
  }
  if (!same) return;
  how.factor.clear();
  how.offset.clear();
}

}  // namespace

checkpoint::Transformations transformations_of(const data::DatasetInfo& info) {
  checkpoint::Transformations found;
  if (has_images(info)) {
    found.mean = info.mean;
    found.std_dev = info.std_dev;
  }
  found.columns = converted<checkpoint::InputColumn>(info.columns);
  found.ignored_columns = info.ignored_columns;
  found.na_values = info.na_values;
  found.targets = scales<checkpoint::TargetScale>(info.target_scales);
  return found;
}

data::DatasetInfo samples_of_training(const checkpoint::DatasetIdentity& identity,
                                      const checkpoint::Transformations& transformations) {
  std::vector<data::InputInfo> inputs;
  for (const auto& input : identity.inputs)
    inputs.push_back({.name = input.name, .shape = input.shape, .ids = input.ids, .bytes = input.bytes});
  return {.name = "training's samples",
          .task = identity.task,
          .classes = identity.classes,
          .targets = identity.targets,
          .target_scales = scales<data::TargetScale>(transformations.targets),
          .target_shape = identity.target_shape,
          .shape = identity.shape,
          .mean = transformations.mean,
          .std_dev = transformations.std_dev,
          .columns = converted<data::InputColumn>(transformations.columns),
          .ignored_columns = transformations.ignored_columns,
          .na_values = transformations.na_values,
          .inputs = std::move(inputs)};
}

checkpoint::DatasetIdentity identity_of(const data::DatasetInfo& info) {
  checkpoint::DatasetIdentity identity{.samples = {},
                                       .sha256 = data::dataset_hash(info),
                                       .classes = info.classes,
                                       .targets = info.targets,
                                       .task = info.task,
                                       .shape = info.shape,
                                       .target_shape = info.target_shape};
  for (const auto& input : info.inputs)
    identity.inputs.push_back(
        {.name = input.name, .shape = input.shape, .ids = input.ids, .bytes = input.bytes});
  for (const auto& [name, split] : info.splits) identity.samples[name] = split.samples;
  return identity;
}

void check_same_classes(const checkpoint::DatasetIdentity& trained, const data::DatasetInfo& info,
                        const std::string& checkpoint) {
  const auto& then = trained.classes;
  const auto& now = info.classes;
  if (then.empty() || now.empty() || then == now) return;
  const auto differs = std::ranges::mismatch(then, now);
  const std::string what =
      then.size() != now.size()
          ? fmt::format("{} against {}", then.size(), now.size())
          : fmt::format("class {} was {} and is {}", differs.in1 - then.begin(), *differs.in1, *differs.in2);
  throw checkpoint_error(
      fmt::format("was trained on other classes than the dataset {} has: {}", info.name, what), checkpoint,
      "stage a dataset with the same classes in the same order, and name it with --dataset");
}

void check_same_targets(const checkpoint::DatasetIdentity& trained, const data::DatasetInfo& info,
                        const std::string& checkpoint) {
  if (trained.sha256.empty() || trained.targets == info.targets) return;
  const auto in_words = [](const std::vector<std::string>& names) {
    return names.empty() ? std::string("one") : fmt::format("{}", fmt::join(names, ", "));
  };
  throw checkpoint_error(fmt::format("was trained on other targets than the dataset {} has: {} against {}",
                                     info.name, in_words(trained.targets), in_words(info.targets)),
                         checkpoint, "stage a table with the same --target, and name it with --dataset");
}

InputTransformation own_transformation(const data::DatasetInfo& info) {
  if (has_images(info)) return {.mean = info.mean, .std_dev = info.std_dev};
  return {.targets = scales<checkpoint::TargetScale>(info.target_scales)};
}

InputTransformation transformation_as_trained(const std::optional<checkpoint::Transformations>& trained,
                                              const data::DatasetInfo& info, const std::string& checkpoint) {
  InputTransformation how = own_transformation(info);
  if (!trained) {
    how.floats = InputTransformation::Floats::as_stored;
    how.targets.clear();
    return how;
  }
  if (has_images(info)) compare_scales(*trained, info, checkpoint);
  how.targets = trained->targets;
  how.mean = trained->mean;
  how.std_dev = trained->std_dev;
  // Arrays have no columns: rows made by others are taken as the values of the original.
  const bool arrays = trained->columns.empty() || info.columns.empty();
  if (arrays && plain(trained->columns) && plain(info.columns)) return how;
  compare_columns(*trained, info, checkpoint);
  change_columns(how, *trained, info);
  return how;
}

}  // namespace dtrain::state
