#include "data/import/originals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "core/error.hpp"

namespace dtrain::data {
namespace {

constexpr std::int64_t kMostClasses = 1'000'000;

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text = "[n";
  for (const std::int64_t extent : shape) text += ", " + std::to_string(extent);
  return text + "]";
}

std::shared_ptr<const Column> as_float(const Column& bytes) {
  const auto values = read_whole<std::uint8_t>(bytes);
  HostArray floats;
  floats.reset(ElementType::float32, {bytes.rows(), static_cast<std::int64_t>(bytes.row_bytes())});
  std::copy(values.begin(), values.end(), floats.as<float>().begin());
  return MemoryColumn::of(std::move(floats));
}

template <typename Value>
bool is_one_hot(std::span<const Value> row) {
  return row.size() > 1 && std::ranges::count(row, Value{1}) == 1 &&
         std::ranges::count(row, Value{0}) == std::ssize(row) - 1;
}

/// Throws data_error where each row has a 1 among zeros.
template <typename Value>
void refuse_one_hot(const std::vector<Value>& values, const Column& targets, const std::string& subject) {
  const auto width = static_cast<std::size_t>(element_count(targets.row_shape()));
  if (values.empty()) return;
  for (std::size_t at = 0; at < values.size(); at += width) {
    if (!is_one_hot(std::span(values).subspan(at, width))) return;
  }
  throw data_error(fmt::format("has a 1 among {} targets of each sample, like a class", width), subject,
                   "give the class's number, such as y.argmax(1), or say --task regression");
}

bool begins_one_hot(const Column& targets) {
  std::vector<float> row(static_cast<std::size_t>(element_count(targets.row_shape())));
  targets.read(0, 1, reinterpret_cast<std::byte*>(row.data()));
  return is_one_hot(std::span<const float>(row));
}

/// Targets as float32. Throws data_error for one-hot classes, which mean something else unless a regression
/// was `said`.
std::shared_ptr<const Column> numbers_of(const std::shared_ptr<const Column>& targets,
                                         const std::string& subject, bool said) {
  if (targets->type() == ElementType::float32) {
    if (!said && targets->rows() > 0 && begins_one_hot(*targets))
      refuse_one_hot(read_whole<float>(*targets), *targets, subject);
    return targets;
  }
  const auto values = read_whole<std::int64_t>(*targets);
  if (!said) refuse_one_hot(values, *targets, subject);
  return column_from(std::vector<float>(values.begin(), values.end()), targets->row_shape());
}

/// Like classes that were written as floats.
bool are_few_whole_numbers(const Column& targets) {
  constexpr std::size_t kMostDifferent = 20;
  std::set<float> different;
  for (const float value : read_whole<float>(targets)) {
    if (value != std::floor(value) || value < 0) return false;
    different.insert(value);
    if (different.size() > kMostDifferent) return false;
  }
  return true;
}

}  // namespace

std::vector<std::string> classes_of(const std::vector<std::int64_t>& targets, const std::string& subject,
                                    std::int64_t per_sample) {
  if (targets.empty()) throw data_error("holds no samples", subject, "give at least ten");
  const auto odd = std::ranges::find_if_not(
      targets, [](std::int64_t target) { return target >= 0 && target < kMostClasses; });
  if (odd != targets.end())
    throw data_error(fmt::format("has the class {} as the target of sample {}, outside 0 to {}", *odd,
                                 (odd - targets.begin()) / per_sample, kMostClasses - 1),
                     subject, "number classes from 0, or say --task regression");
  const std::int64_t most = std::ranges::max(targets);
  std::vector<std::string> names;
  for (std::int64_t name = 0; name <= most; ++name) names.push_back(std::to_string(name));
  return names;
}

void require_same_count(const Column& inputs, const Column& targets, const std::string& inputs_name,
                        const std::string& targets_name) {
  if (inputs.rows() != targets.rows())
    throw data_error("holds " + std::to_string(inputs.rows()) + " samples but " + targets_name + " has " +
                         std::to_string(targets.rows()) + " targets",
                     inputs_name, "give files that belong together");
}

Originals from_arrays(std::shared_ptr<const Column> inputs, std::shared_ptr<const Column> targets,
                      const std::string& subject, const std::string& targets_subject,
                      const std::string& task) {
  Originals found;
  const std::vector<std::int64_t> shape = inputs->row_shape();
  const bool bytes = inputs->type() == ElementType::uint8;
  if (shape.size() == 1 && bytes) inputs = as_float(*inputs);
  const bool images = shape.size() == 3 || (shape.size() == 2 && bytes);
  found.shape = shape;
  if (images && shape.size() == 2) found.shape.insert(found.shape.begin(), 1);
  if (!images && shape.size() != 1 && shape.size() != 2)
    throw data_error(
        "has inputs of shape " + text_of(shape) + ", neither images nor a table", subject,
        "write images as [n, C, H, W] or uint8 [n, H, W], tables as float32 [n, F] or [n, T, F]");
  if (images && found.shape[0] > 4 && found.shape[2] <= 4)
    throw data_error("has images of shape " + text_of(shape) + " with the channels last", subject,
                     "transpose them to [n, C, H, W]");
  const auto target_shape = targets->row_shape();
  const bool places = target_shape.size() == 2;
  if (target_shape.size() > 2 || element_count(target_shape) < 1)
    throw data_error("has targets of shape " + text_of(target_shape), targets_subject,
                     "give one target per sample, several numbers of a regression as [n, K], or a class for "
                     "each pixel as [n, H, W]");
  const auto several = element_count(target_shape);
  const bool classes = targets->type() == ElementType::int64;
  const bool regression = task == "regression";
  if (regression && places)
    throw usage_error(
        "is for a number or several of each sample, and the targets have the shape " + text_of(target_shape),
        "--task regression", "leave it out, or give targets [n] or [n, K]");
  if (task == "table_classification" && (images || !classes || (several > 1 && !places)))
    throw usage_error(images     ? "is no task of images"
                      : !classes ? "is for whole numbers as targets, and these have fractions"
                                 : "is for one target of each sample, and these have several",
                      "--task " + task, "leave it out");
  if (places && targets->type() != ElementType::int64)
    throw data_error(
        "has targets of shape " + text_of(target_shape) + " that are no whole numbers", targets_subject,
        "give the class of each pixel as whole numbers from 0, or several numbers of a regression "
        "as [n, K]");
  if (places) found.target_shape = target_shape;
  if (regression || (several > 1 && !places)) targets = numbers_of(targets, targets_subject, regression);
  if (several > 1 && !places) {
    for (std::int64_t name = 0; name < several; ++name) found.targets.push_back(std::to_string(name));
  }
  if (targets->type() == ElementType::int64) {
    found.task = images ? "image_classification" : "table_classification";
    found.classes =
        classes_of(read_whole<std::int64_t>(*targets), targets_subject, element_count(target_shape));
  } else {
    found.task = "regression";
    if (!regression && several == 1 && are_few_whole_numbers(*targets))
      found.remarks.push_back(
          "the targets are whole numbers of type float: a regression, since only whole types name classes "
          "(y.astype(int) makes them such)");
  }
  found.splits["train"] = {std::move(inputs), std::move(targets)};
  return found;
}

}  // namespace dtrain::data
