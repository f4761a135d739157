// Microseconds per training step of one rank without communication: forward, backward, gathering the
// gradients in flat memory, update. dtrain_perf_step [steps]; one thread.
#include <time.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "models/model.hpp"
#include "optim/optimizer.hpp"

namespace {

using namespace dtrain;

struct Case {
  std::string model;
  models::DatasetFacts facts;
  std::int64_t batch;
};

struct Times {
  double forward_us;
  double backward_us;
  double gather_us;
  double update_us;
  double total_us;
};

double thread_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Parameters as views into flat memory, as parallel lays them out.
at::Tensor flatten(models::Model& model) {
  const at::Tensor flat = at::empty({model.parameter_count()});
  std::int64_t offset = 0;
  for (models::Parameter* parameter : model.parameters()) {
    const std::int64_t count = parameter->value.numel();
    const at::Tensor view = flat.narrow(0, offset, count).view(parameter->value.sizes());
    view.copy_(parameter->value.detach());
    parameter->value.set_data(view);
    offset += count;
  }
  return flat;
}

Times median_step(const Case& what, int steps) {
  const auto& registration = models::find_model(what.model);
  const auto model = registration.make(what.facts, {});
  model->initialise(1);
  const at::Tensor flat = flatten(*model);
  const at::Tensor gradients = at::zeros_like(flat);
  const auto& recipe = registration.recipe.options;
  const auto number = [&](const char* option) {
    return recipe.contains(option) ? std::stod(recipe.at(option)) : 0;
  };
  const auto optimizer = optim::make_optimizer({.name = recipe.at("optimizer"),
                                                .momentum = number("momentum"),
                                                .weight_decay = number("weight-decay")},
                                               flat.numel(), {});
  models::Shape shape = what.facts.sample_shape;
  shape.insert(shape.begin(), what.batch);
  const at::Tensor input = at::randn(shape);
  const at::Tensor targets = at::randint(what.facts.classes, {what.batch}, at::kLong);
  std::vector<Times> times;
  for (int step = 1; step <= steps; ++step) {
    const models::Context context{.step = static_cast<std::uint32_t>(step)};
    const double start = thread_s();
    models::Tensors values = {input};
    for (auto& layer : model->layers()) values = layer->forward(values, context);
    const models::LossSums sums = model->loss(values, targets);
    const double forward = thread_s();
    sums.loss.backward();
    const double backward = thread_s();
    std::int64_t offset = 0;
    for (models::Parameter* parameter : model->parameters()) {
      const std::int64_t count = parameter->value.numel();
      gradients.narrow(0, offset, count).copy_(parameter->value.grad().view(-1));
      parameter->value.mutable_grad().reset();
      offset += count;
    }
    const double gathered = thread_s();
    optimizer->step(flat, gradients, 1.0 / static_cast<double>(what.batch), number("learning-rate"), step);
    const double end = thread_s();
    times.push_back({1e6 * (forward - start), 1e6 * (backward - forward), 1e6 * (gathered - backward),
                     1e6 * (end - gathered), 1e6 * (end - start)});
  }
  std::ranges::sort(times, {}, &Times::total_us);
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(1, std::atoi(argv[1])) : 300;
  at::set_num_threads(1);
  const models::DatasetFacts mnist{
      .task = "image_classification", .sample_shape = {1, 28, 28}, .classes = 10};
  const models::DatasetFacts cifar{
      .task = "image_classification", .sample_shape = {3, 32, 32}, .classes = 10};
  std::printf("model  batch  forward_us  backward_us  gather_us  update_us  total_us  samples_per_s\n");
  for (const Case& what :
       {Case{"mlp", mnist, 32}, Case{"mlp", mnist, 64}, Case{"cnn", cifar, 32}, Case{"cnn", cifar, 64}}) {
    const Times t = median_step(what, steps);
    std::printf("%-5s  %5lld  %10.0f  %11.0f  %9.0f  %9.0f  %8.0f  %13.0f\n", what.model.c_str(),
                static_cast<long long>(what.batch), t.forward_us, t.backward_us, t.gather_us, t.update_us,
                t.total_us, 1e6 * static_cast<double>(what.batch) / t.total_us);
  }
}
