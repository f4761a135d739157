#include "models/exported/golden.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/checked_bytes.hpp"
#include "core/error.hpp"
#include "core/nesting.hpp"
#include "core/printable.hpp"
#include "core/whole_number.hpp"
#include "models/exported/program_layer.hpp"
#include "models/exported/program_layers.hpp"
#include "models/model.hpp"

namespace dtrain::models::exported {
namespace {

using Json = nlohmann::json;

constexpr const char* kRecord = "extra/dtrain_golden.json";
constexpr std::int64_t kLargestRecordBytes = 1 << 28;
constexpr double kTolerance = 1e-5;  // of float64: room for another order of sums, none for another operator
constexpr double kNoise = 1e-6;      // of the largest gradient: below it a gradient is the rounding of sums

/// Only its layers are used.
class Replayed final : public Model {
 public:
  explicit Replayed(std::vector<std::unique_ptr<Layer>> layers) : Model("golden", std::move(layers)) {}
  LossSums loss(const Tensors& /*outputs*/, const at::Tensor& /*targets*/) const override { return {}; }
};

std::vector<std::int64_t> numbers_of(const Json& list) {
  std::vector<std::int64_t> numbers;
  for (const Json& one : list) numbers.push_back(required_whole_number(one));
  return numbers;
}

at::Tensor tensor_of(const Json& given) {
  const auto shape = numbers_of(given.at("shape"));
  const bool real = given.at("dtype").get<std::string>() == "float64";
  const Json& values = given.at("values");
  const auto bytes = checked_bytes(shape, 1);
  if (!bytes || static_cast<std::size_t>(*bytes) != values.size())
    throw Error("has a golden batch whose shape does not fit its values", {});
  if (real) return at::tensor(values.get<std::vector<double>>(), at::kDouble).reshape(shape);
  return at::tensor(numbers_of(values), at::kLong).reshape(shape);
}

at::Tensor mean_loss(const std::string& loss, const at::Tensor& outputs, const at::Tensor& targets) {
  if (loss == "model") return outputs.sum();
  if (loss == "cross_entropy") {
    if (outputs.dim() == 3) return at::cross_entropy_loss(outputs.flatten(0, 1), targets.flatten());
    return at::cross_entropy_loss(outputs, targets);
  }
  if (loss == "mse") return at::mse_loss(outputs, targets.reshape(outputs.sizes()));
  if (loss == "mae") return at::l1_loss(outputs, targets.reshape(outputs.sizes()));
  throw Error("has a golden batch with a loss that dtrain does not have: " + printable(loss, 50), {});
}

Error disagrees(const std::string& what, double found, double wanted) {
  return Error(fmt::format("computes another {} for its golden batch than PyTorch did: {:.9g}, not {:.9g}",
                           what, found, wanted),
               {.advice = "report it with the module; --golden off trains all the same"});
}

/// On cos(0), cos(1), ..., in pieces: the cosines take as much memory as the gradient.
double projection_of(const at::Tensor& gradient) {
  constexpr std::int64_t kPiece = 1 << 20;
  double sum = 0;
  for (std::int64_t begin = 0; begin < gradient.numel(); begin += kPiece) {
    const auto count = std::min(kPiece, gradient.numel() - begin);
    const auto cosines = at::arange(begin, begin + count, at::kDouble).cos_();
    sum += gradient.narrow(0, begin, count).dot(cosines).item<double>();
  }
  return sum;
}

class Comparison {
 public:
  explicit Comparison(const Json& golden) : golden_(golden) {
    for (const auto& [name, gradient] : golden.at("gradients").items())
      largest_ = std::max(largest_, gradient.at("norm").get<double>());
  }

  void loss(double found) const {
    const double wanted = golden_.at("value").get<double>();
    if (!(std::abs(found - wanted) <= kTolerance * std::max(std::abs(wanted), 1e-12)))
      throw disagrees("loss", found, wanted);
  }

  void gradient(const std::string& name, const Parameter& parameter) {
    const auto& gradients = golden_.at("gradients");
    const auto place = gradients.find(name);
    if (place == gradients.end()) return;
    ++compared_;
    const at::Tensor given = parameter.value.grad();
    const at::Tensor flat = given.defined() ? given.contiguous().flatten() : at::zeros({1}, at::kDouble);
    const double norm = flat.norm().item<double>();
    const double projection = projection_of(flat);
    const double wanted = place->at("norm").get<double>();
    const double room = kTolerance * std::max(wanted, kNoise * largest_);
    const std::string what = "gradient of " + printable(name, 100);
    if (!(std::abs(norm - wanted) <= room)) throw disagrees(what + " (its norm)", norm, wanted);
    const double along = place->at("projection").get<double>();
    if (!(std::abs(projection - along) <= room))
      throw disagrees(what + " (its projection)", projection, along);
  }

  std::size_t compared() const { return compared_; }

 private:
  const Json& golden_;
  double largest_ = 0;
  std::size_t compared_ = 0;
};

std::string replay(const std::shared_ptr<const PlannedProgram>& planned, const Json& golden) {
  if (whole_number(golden.at("version")) != 1 || golden.value("dropout", std::string("off")) != "off")
    throw Error("has a golden batch of another version", {.advice = "export it again, or use --golden off"});
  auto [layers, unused] = make_layers(planned);
  Replayed model(std::move(layers));
  model.to(at::kDouble, at::kCPU);
  model.initialise(1);
  Tensors flowing;
  for (const Json& input : golden.at("inputs")) flowing.push_back(tensor_of(input));
  if (flowing.size() != planned->plan.user_inputs.size())
    throw Error("has a golden batch with another number of inputs than its program", {});
  const at::AutoGradMode gradients(true);
  const Context context{.mode = Mode::training};
  const auto& target = golden.at("target");
  const at::Tensor wanted = target.is_null() ? at::Tensor() : tensor_of(target);
  at::Tensor loss;
  try {
    for (const auto& layer : model.layers()) flowing = layer->run(flowing, context);
    loss = mean_loss(golden.at("loss").get<std::string>(), flowing.at(0), wanted);
    torch::autograd::backward({loss}, {});
  } catch (const c10::Error& error) {
    if (is_of_the_machine(error)) throw;
    throw Error(fmt::format("does not get through its golden batch ({})",
                            printable(error.what_without_backtrace(), 200)),
                {.advice = "run forward and backward of the module in PyTorch; if it trains there, report "
                           "this; --golden off leaves the check out",
                 .code = ExitCode::usage});
  }
  Comparison comparison(golden);
  comparison.loss(loss.item<double>());
  for (const auto* input : planned->program.graph().inputs_of(GraphInput::Kind::parameter)) {
    const auto& first = planned->program.first_name(input->name);
    for (const Parameter* parameter : model.parameters()) {
      if (parameter->name == first) comparison.gradient(input->name, *parameter);
    }
  }
  return fmt::format("golden batch: loss {:.6g} and {} gradients as PyTorch found them", loss.item<double>(),
                     comparison.compared());
}

}  // namespace

std::string check_golden(const std::string& file) {
  const auto planned = std::make_shared<const PlannedProgram>(file, PlannedProgram::Dropout::off);
  std::string line;
  planned->program.understand([&] {
    if (!planned->program.archive().has(kRecord)) return;
    const auto record = planned->program.archive().read(kRecord, kLargestRecordBytes);
    if (const auto problem = refused_json(record.text(), {.values = 20'000'000}); !problem.empty())
      throw Error("has a golden batch that " + problem, {});
    line = replay(planned, Json::parse(record.text()));
  });
  return line;
}

}  // namespace dtrain::models::exported
