// What each layer of a model takes on this machine, forward and back on one thread, beside what is counted
// for it: do stages that are cut by counts take the same time?
//   layer_costs MODEL SAMPLES [OPTION=VALUE...]
// Prints a CSV line per layer: its name, seconds measured, FLOPs, work by which stages are cut; then for 2 to
// 4 stages the greatest one's share of the time, where they are cut by each of the three.
#include <fmt/core.h>
#include <torch/torch.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "models/model.hpp"
#include "parallel/pipeline/layer_times.hpp"
#include "parallel/pipeline/stage_cuts.hpp"

namespace {

using namespace dtrain;

/// Of built-in data, as the program's own.
models::DatasetFacts facts_of(const std::string& name) {
  if (name == "gpt") return {.task = "language_modelling", .sample_shape = {64}, .vocabulary = 65};
  const bool small = name == "mlp" || name == "cnn";
  return {.task = "image_classification",
          .sample_shape = small ? models::Shape{1, 28, 28} : models::Shape{3, 32, 32},
          .classes = 10};
}

std::vector<double> flops_of(const models::Model& model, std::vector<models::Shape> shapes) {
  std::vector<double> flops;
  for (const auto& layer : model.layers()) {
    flops.push_back(layer->cost(shapes).flops);
    shapes = layer->output_shapes(shapes);
  }
  return flops;
}

/// The greatest stage's share of the time when stages are cut by `costs`.
double greatest_stage(const std::vector<double>& times, const std::vector<double>& costs, int stages) {
  double greatest = 0;
  for (const auto& layers : parallel::cut_stages(costs, stages, 1, "the model").layers)
    greatest =
        std::max(greatest, std::accumulate(times.begin() + layers.begin, times.begin() + layers.end, 0.0));
  return greatest / std::accumulate(times.begin(), times.end(), 0.0);
}

void print_costs(const std::string& name, std::int64_t samples, const models::ModelOptions& options) {
  const auto facts = facts_of(name);
  const auto model = models::find_model(name).make(facts, options);
  model->initialise(1);
  const auto inputs = model->input_shapes(samples, facts.sample_shape);
  const auto flops = flops_of(*model, inputs);
  const auto work = parallel::work_of_layers(*model, inputs, parallel::Computed::by_own_kernels);
  const auto times = parallel::measure_layers(*model, inputs, {.vocabulary = facts.vocabulary});
  fmt::print("layer,seconds,flops,work\n");
  for (std::size_t i = 0; i < times.size(); ++i)
    fmt::print("{},{:.6f},{:.0f},{:.0f}\n", model->layers()[i]->name(), times[i], flops[i], work[i]);
  for (const int stages : {2, 3, 4}) {
    if (std::ssize(times) < stages) return;
    fmt::print("# the greatest of {} stages: {:.3f} cut by seconds, {:.3f} by FLOPs, {:.3f} by work\n",
               stages, greatest_stage(times, times, stages), greatest_stage(times, flops, stages),
               greatest_stage(times, work, stages));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  std::int64_t samples = 0;
  if (words.size() >= 2) std::from_chars(words[1].data(), words[1].data() + words[1].size(), samples);
  if (samples < 1) {
    fmt::print(stderr, "usage: layer_costs MODEL SAMPLES [OPTION=VALUE...]\n");
    return 2;
  }
  models::ModelOptions options;
  for (std::size_t i = 2; i < words.size(); ++i) {
    const auto equals = std::min(words[i].find('='), words[i].size() - 1);
    options[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  at::set_num_threads(1);
  try {
    print_costs(words[0], samples, options);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
