#include "models/plugins/additions.hpp"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/printable.hpp"

namespace dtrain::models {
namespace {

constexpr std::array<std::string_view, 4> kLosses = {"cross_entropy", "mse", "mae", "model"};

Additions& all() {
  static Additions added;
  return added;
}

bool is_name(const std::string& name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  return !name.empty() && name.size() <= 100 && name.find_first_not_of(kLetters) == std::string::npos;
}

/// Of models or losses, those `known` and those that are added.
template <typename Item>
void check_names(const std::string& file, const char* kind, std::vector<std::string> known,
                 const std::vector<Item>& more) {
  for (const Item& item : more) {
    if (!is_name(item.name)) {
      throw usage_error(fmt::format("adds a {} called \"{}\"", kind, printable(item.name, 50)),
                        "--plugin " + file, "name it with letters, digits, - and _");
    }
    if (std::ranges::find(known, item.name) != known.end()) {
      throw usage_error(fmt::format("adds a {} called {}, and there is one", kind, item.name),
                        "--plugin " + file, "give each plug-in once, and each addition a name of its own");
    }
    known.push_back(item.name);
  }
}

class WithLoss final : public Model {
 public:
  WithLoss(std::unique_ptr<Model> model, AddedLoss loss)
      : Model(model->name(), std::move(model->layers())), model_(std::move(model)), loss_(std::move(loss)) {}

  Goal goal() const override { return model_->goal(); }
  std::string remark() const override { return model_->remark(); }
  std::vector<Shape> input_shapes(std::int64_t n, const Shape& sample) const override {
    return model_->input_shapes(n, sample);
  }
  void require_known(const Tensors& inputs, const at::Tensor& targets) const override {
    model_->require_known(inputs, targets);
  }
  std::optional<std::size_t> code_layer() const override { return model_->code_layer(); }

  LossSums loss(const Tensors& given, const at::Tensor& targets) const override {
    require(!outputs().sliced(), "works on whole outputs, and each rank has a part of them",
            {.subject = "--loss " + loss_.name,
             .advice = "use a --mesh without tensor",
             .code = ExitCode::usage});
    LossSums sums = loss_.sums(given, targets);
    require(sums.loss.defined() && sums.loss.dim() == 0 && sums.weight > 0,
            "gave no sum over samples: a scalar and how much it sums over",
            {.subject = "--loss " + loss_.name, .advice = "mend the plug-in"});
    if (!sums.correct.defined()) {
      const at::NoGradGuard none;
      const LossSums own = model_->loss(given, targets);
      sums.correct = own.correct;
      sums.counted = own.counted > 0 ? own.counted : own.weight;
    }
    return sums;
  }

 private:
  std::unique_ptr<Model> model_;
  AddedLoss loss_;
};

}  // namespace

const Additions& additions() { return all(); }

void add_from_plugin(const std::string& file, const Additions& more) {
  std::vector<std::string> models;
  for (const Registration& model : registry()) models.push_back(model.name);
  for (const Registration& model : all().models) models.push_back(model.name);
  check_names(file, "model", std::move(models), more.models);
  std::vector<std::string> losses(kLosses.begin(), kLosses.end());
  for (const AddedLoss& loss : all().losses) losses.push_back(loss.name);
  check_names(file, "loss", std::move(losses), more.losses);
  const bool whole = std::ranges::all_of(more.models, [](const auto& model) { return bool{model.make}; }) &&
                     std::ranges::all_of(more.losses, [](const auto& loss) { return bool{loss.sums}; });
  require(whole, "adds a model or a loss without its function",
          {.subject = "--plugin " + file, .advice = "mend the plug-in", .code = ExitCode::usage});
  all().models.insert(all().models.end(), more.models.begin(), more.models.end());
  all().losses.insert(all().losses.end(), more.losses.begin(), more.losses.end());
}

const AddedLoss* find_added_loss(const std::string& name) {
  const auto place = std::ranges::find(all().losses, name, &AddedLoss::name);
  return place == all().losses.end() ? nullptr : &*place;
}

std::unique_ptr<Model> with_added_loss(std::unique_ptr<Model> model, const AddedLoss& loss) {
  return std::make_unique<WithLoss>(std::move(model), loss);
}

}  // namespace dtrain::models
