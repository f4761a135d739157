#include "models/exported/program.hpp"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/checked_bytes.hpp"
#include "core/error.hpp"
#include "core/nesting.hpp"
#include "core/outside.hpp"
#include "core/printable.hpp"
#include "core/sha256.hpp"
#include "core/whole_number.hpp"

namespace dtrain::models::exported {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLargestJson = 1 << 28;
constexpr const char* kModel = "models/model.json";
constexpr const char* kWeights = "data/weights/";
constexpr const char* kWeightsConfig = "data/weights/model_weights_config.json";
constexpr const char* kConstants = "data/constants/";
constexpr const char* kConstantsConfig = "data/constants/model_constants_config.json";
constexpr const char* kNoWeights = "extra/dtrain_without_weights";
constexpr const char* kInTraining = "extra/dtrain_in_training";  // by jobs/export_model.py

std::vector<std::int64_t> whole_numbers(const Json& list) {
  std::vector<std::int64_t> found;
  for (const Json& one : list) found.push_back(required_whole_number(one.at("as_int")));
  return found;
}

StoredTensor stored_tensor(const std::string& name, const Json& given, const std::string& folder) {
  if (given.value("use_pickle", false)) {
    throw Error(fmt::format("keeps the tensor {} pickled, which dtrain does not read", printable(name, 100)),
                {.advice = "use plain tensors as parameters and buffers", .code = ExitCode::usage});
  }
  const Json& meta = given.at("tensor_meta");
  return {.record = folder + given.at("path_name").get<std::string>(),
          .type = scalar_type_of(required_whole_number(meta.at("dtype"))),
          .sizes = whole_numbers(meta.at("sizes")),
          .strides = whole_numbers(meta.at("strides")),
          .offset = required_whole_number(meta.at("storage_offset").at("as_int")),
          .requires_grad = meta.value("requires_grad", false)};
}

/// Elements that a tensor's memory has at least; nothing where that is no tensor's memory.
std::optional<std::int64_t> extent_of(const StoredTensor& tensor) {
  if (tensor.sizes.size() != tensor.strides.size() || tensor.offset < 0) return std::nullopt;
  const auto bytes = checked_bytes(tensor.sizes, 1, std::int64_t{1} << 48);
  if (!bytes) return std::nullopt;
  if (*bytes == 0) return 0;
  std::int64_t last = tensor.offset;
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    const auto stride = tensor.strides[i];
    if (stride < 0 || stride > (std::int64_t{1} << 48)) return std::nullopt;
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.sizes[i] - 1, stride, &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return std::nullopt;
    }
  }
  return last + 1;
}

}  // namespace

bool StoredTensor::same_memory(const StoredTensor& other) const {
  return record == other.record && type == other.type && sizes == other.sizes && strides == other.strides &&
         offset == other.offset;
}

Program::Program(const std::string& file) : archive_(file) {
  understand([this] {
    if (!archive_.has(kModel)) {
      const auto records = archive_.records();
      const bool script = std::ranges::any_of(
          records, [](const auto& name) { return name == "data.pkl" || name.starts_with("code/"); });
      throw Error("holds no exported program",
                  {.advice = script ? "it is TorchScript or a pickled module: save it with "
                                      "torch.export.save(torch.export.export(...), FILE)"
                                    : "name a file that torch.export.save of PyTorch 2.11 wrote"});
    }
    graph_ = parse_graph(archive_.read(kModel, kLargestJson).text());
    has_weights_ = !archive_.has(kNoWeights);
    was_in_training_ = archive_.has(kInTraining);
    read_tensors(kWeightsConfig, weights_);
    read_tensors(kConstantsConfig, constants_);
    check_tensors();
    find_tied();
  });
}

void Program::understand(const std::function<void()>& action) const {
  const ErrorContext context{.subject = file(),
                             .advice = "name a file that torch.export.save wrote, or take another copy of it",
                             .code = ExitCode::checkpoint};
  try {
    understand_from_outside(context, action);
  } catch (const Error& error) {
    if (!error.subject().empty()) throw;
    throw Error(error.problem(),
                {.subject = "--model " + file(), .advice = error.advice(), .code = error.code()});
  }
}

void Program::read_tensors(const std::string& config, std::map<std::string, StoredTensor>& into) const {
  const auto record = archive_.read(config, kLargestJson);
  if (const auto problem = refused_json(record.text()); !problem.empty())
    throw Error("has a list of tensors that " + problem, {});
  const std::string folder = config.substr(0, config.rfind('/') + 1);
  const Json list = Json::parse(record.text());
  for (const auto& [name, entry] : list.at("config").items())
    into.emplace(name, stored_tensor(name, entry, folder));
}

const StoredTensor& Program::find(const GraphInput& input) const {
  const bool in_state = input.kind == GraphInput::Kind::parameter ||
                        (input.kind == GraphInput::Kind::buffer && input.persistent);
  const auto& tensors = in_state ? weights_ : constants_;
  const auto place = tensors.find(input.name);
  if (place == tensors.end())
    throw archive_.damaged(fmt::format("has no values of the tensor {}", printable(input.name, 100)));
  return place->second;
}

std::string Program::constants_hash() const {
  Sha256 hash;
  bool any = false;
  for (const GraphInput& input : graph_.inputs) {
    const bool is_constant = input.kind == GraphInput::Kind::constant ||
                             (input.kind == GraphInput::Kind::buffer && !input.persistent);
    if (!is_constant) continue;
    any = true;
    const at::Tensor value = read(input);
    const std::string heading =
        fmt::format("{} {} {}\n", input.name, at::toString(value.scalar_type()), value.numel());
    hash.add(heading.data(), heading.size());
    hash.add(value.const_data_ptr(), value.nbytes());
  }
  return any ? hash.hexadecimal() : std::string();
}

/// Before anything is allocated: sizes as the graph has them, inside a record that is there.
void Program::check_tensors() {
  std::map<at::ScalarType, std::size_t> types;
  for (const GraphInput& input : graph_.inputs) {
    if (input.kind == GraphInput::Kind::user) continue;
    const auto& stored = find(input);
    const auto name = printable(input.name, 100);
    const auto extent = extent_of(stored);
    if (!extent) throw Error(fmt::format("has a tensor {} of impossible sizes", name), {});
    const TensorFacts& facts = *graph_[input.value].tensor;
    bool alike = facts.type == stored.type && facts.sizes.size() == stored.sizes.size();
    for (std::size_t i = 0; alike && i < stored.sizes.size(); ++i)
      alike = facts.sizes[i].constant() == stored.sizes[i];
    if (!alike) throw Error(fmt::format("has a tensor {} of another shape than its graph", name), {});
    const bool parameter = input.kind == GraphInput::Kind::parameter;
    if (parameter && !at::isFloatingType(stored.type)) {
      throw Error(
          fmt::format("has a parameter {} of {}, which cannot be trained", name, at::toString(stored.type)),
          {.advice = "register it as a buffer", .code = ExitCode::usage});
    }
    if (parameter) ++types[stored.type];
    if (*extent == 0 || (!has_weights_ && parameter)) continue;
    const auto bytes = *extent * static_cast<std::int64_t>(at::elementSize(stored.type));
    // An element may stand for many, but not for more than what one would write out.
    constexpr std::int64_t kMostRepeated = 1 << 26;
    const auto whole = checked_bytes(stored.sizes, static_cast<std::int64_t>(at::elementSize(stored.type)),
                                     std::max(bytes, kMostRepeated));
    if (!whole) throw Error(fmt::format("has a tensor {} of impossible sizes", name), {});
    if (archive_.size_of(stored.record) < bytes) {
      throw Error(fmt::format("has {} bytes of the tensor {}, which takes {}",
                              archive_.size_of(stored.record), name, bytes),
                  {});
    }
  }
  std::size_t most = 0;
  for (const auto& [type, count] : types) {
    if (count > most) type_ = type;
    most = std::max(most, count);
  }
}

void Program::find_tied() {
  const auto parameters = graph_.inputs_of(GraphInput::Kind::parameter);
  for (const auto* input : parameters) {
    const auto& stored = find(*input);
    const std::string* first = nullptr;
    for (const auto* other : parameters) {
      if (other == input) break;
      const auto& before = find(*other);
      if (before.record != stored.record || stored.sizes == std::vector<std::int64_t>{0}) continue;
      if (!before.same_memory(stored)) {
        throw Error(fmt::format("has two parameters, {} and {}, that are different views of one tensor",
                                printable(other->name, 100), printable(input->name, 100)),
                    {.advice = "give the module one parameter, and let forward make the views",
                     .code = ExitCode::usage});
      }
      first = &first_names_.at(other->name);
      break;
    }
    first_names_.emplace(input->name, first != nullptr ? *first : input->name);
  }
  for (const auto* buffer : graph_.inputs_of(GraphInput::Kind::buffer)) {
    const auto& stored = find(*buffer);
    const auto owner = std::ranges::find_if(
        parameters, [&](const auto* parameter) { return find(*parameter).record == stored.record; });
    if (owner == parameters.end() || stored.sizes == std::vector<std::int64_t>{0}) continue;
    throw Error(
        fmt::format("has a buffer, {}, that is the memory of the parameter {}", printable(buffer->name, 100),
                    printable((*owner)->name, 100)),
        {.advice = "register a clone() of the parameter as the buffer, or use the parameter in forward",
         .code = ExitCode::usage});
  }
}

at::Tensor Program::read(const GraphInput& input) const {
  const auto& stored = find(input);
  const auto options = at::TensorOptions().dtype(stored.type);
  const auto extent = extent_of(stored).value_or(0);
  if (extent == 0 || (!has_weights_ && input.kind == GraphInput::Kind::parameter))
    return at::zeros(stored.sizes, options);
  const auto record = archive_.read(stored.record);
  const auto elements = static_cast<std::int64_t>(record.bytes() / at::elementSize(stored.type));
  if (elements < extent) throw archive_.damaged("lacks bytes of the tensor " + printable(input.name, 100));
  const auto memory = at::from_blob(const_cast<void*>(record.data()), {elements}, options);
  const auto view = memory.as_strided(stored.sizes, stored.strides, stored.offset);
  return at::empty(stored.sizes, options).copy_(view);
}

void Program::save_without_weights(const std::string& file) const {
  ArchiveWriter writer(file);
  std::vector<std::string> trained;
  for (const auto* input : graph_.inputs_of(GraphInput::Kind::parameter))
    trained.push_back(find(*input).record);
  for (const auto& name : archive_.records()) {
    const bool kept = name == kModel || name.starts_with(kConstants) || name.starts_with(kWeights) ||
                      name == "archive_format" || name == "archive_version" || name == "byteorder";
    if (!kept || std::ranges::find(trained, name) != trained.end()) continue;
    writer.add(name, archive_.read(name).text());
  }
  writer.add(kNoWeights, "1");
  if (was_in_training_) writer.add(kInTraining, "1");
  writer.finish();
}

}  // namespace dtrain::models::exported
