// How long the ranks of a pipeline wait, with layers that sleep instead of computing: what schedule and
// messages cost, whatever the cores do. Prints a CSV line per schedule and number of micro-batches: the idle
// share measured, that of the schedule's simulation, and that of the formula (p - 1) / (v m + p - 1)
// (Narayanan et al. 2021), which holds from as many micro-batches as ranks on.
//   mpirun -np P pipeline_idle [--milliseconds 20] [--steps 5]
#include <fmt/core.h>
#include <mpi.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/groups.hpp"
#include "comm/mpi/mpi_environment.hpp"
#include "comm/survey/discover.hpp"
#include "core/clock.hpp"
#include "parallel/pipeline/pipeline.hpp"
#include "parallel/pipeline/simulation.hpp"

namespace {

using namespace dtrain;

double busy_s = 0;  // that this rank has slept

void sleep_for(double seconds) {
  const double start_s = steady_s();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  busy_s += steady_s() - start_s;
}

/// The identity, which takes its time forward and twice that back.
class Sleep final : public torch::autograd::Function<Sleep> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            double seconds) {
    context->saved_data["seconds"] = seconds;
    sleep_for(seconds);
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    sleep_for(2 * context->saved_data["seconds"].toDouble());
    return {gradients[0], at::Tensor()};
  }
};

class SleepingLayer final : public models::Layer {
 public:
  SleepingLayer(int index, double seconds) : Layer(fmt::format("layer.{}", index)), seconds_(seconds) {
    parameters_.push_back({.name = name() + ".weight", .value = at::ones({1}).set_requires_grad(true)});
  }
  models::Tensors forward(const models::Tensors& inputs, const models::Context&) override {
    return {Sleep::apply(inputs[0] * parameters_[0].value, seconds_)};
  }
  std::vector<models::Shape> output_shapes(const std::vector<models::Shape>& inputs) const override {
    return inputs;
  }
  models::Cost cost(const std::vector<models::Shape>&) const override { return {.flops = 1}; }

 private:
  double seconds_;
};

class SleepingModel final : public models::Model {
 public:
  explicit SleepingModel(std::vector<std::unique_ptr<models::Layer>> layers)
      : Model("sleeping", std::move(layers)) {}
  models::LossSums loss(const models::Tensors& outputs, const at::Tensor&) const override {
    return {.loss = outputs[0].sum(), .weight = 1};
  }
};

/// The median idle share over `steps` steps, over all ranks.
double measure(comm::Groups& groups, SpanSink& sink, parallel::Pipelining pipelining, int stages_per_rank,
               int micro_batches, double seconds, int steps) {
  auto& pipe = groups.pipe();
  const int stages = pipe.size() * stages_per_rank;
  std::vector<std::unique_ptr<models::Layer>> layers;
  for (int i = 0; i < stages; ++i) layers.push_back(std::make_unique<SleepingLayer>(i, seconds));
  SleepingModel model(std::move(layers));
  const auto cuts = parallel::cut_stages(std::vector<double>(static_cast<std::size_t>(stages), 1.0),
                                         pipe.size(), stages_per_rank, "sleeping");
  model.hold(cuts.layers_of(pipe.rank()));
  parallel::Pipeline pipeline(
      {.model = model, .cuts = cuts, .pipe = pipe, .queue = groups.queue(), .sink = sink});
  const auto schedule = parallel::make_schedule(pipelining, pipe.size(), stages_per_rank, micro_batches);
  const std::vector<std::int64_t> samples(static_cast<std::size_t>(micro_batches), 64);
  std::vector<double> idle;
  for (int step = 0; step <= steps; ++step) {  // the first one describes the messages
    groups.world().barrier().wait();
    busy_s = 0;
    const double start_s = steady_s();
    pipeline.train(
        schedule, samples,
        {.context = [](int) { return models::Context{}; },
         .inputs =
             [](int) {
               return models::Tensors{at::ones({64, 64})};
             },
         .loss = [&](int, const models::Tensors& outputs) { return model.loss(outputs, {}).loss; }});
    groups.world().barrier().wait();
    std::vector<double> sums = {busy_s, steady_s() - start_s};
    groups.world().all_reduce(comm::Buffer::of(std::span(sums)), comm::ReduceOp::sum).wait();
    if (step > 0) idle.push_back(1 - sums[0] / sums[1]);
  }
  std::ranges::nth_element(idle, idle.begin() + steps / 2);
  return idle[static_cast<std::size_t>(steps) / 2];
}

}  // namespace

int main(int argc, char** argv) {
  double milliseconds = 20;  // of a stage forward
  int steps = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--milliseconds") milliseconds = std::stod(argv[i + 1]);
    if (std::string(argv[i]) == "--steps") steps = std::stoi(argv[i + 1]);
  }
  comm::MpiEnvironment mpi(argc, argv);
  at::set_num_threads(1);
  NullSpanSink sink;
  const auto world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  const auto cluster = comm::discover_cluster(world, comm::affinity_mask());
  auto groups = comm::make_groups(world, cluster, topology::Mesh(cluster, {.pipe = world.size()}),
                                  {.timeout_s = 60}, sink);
  if (world.rank() == 0) fmt::print("schedule,ranks,stages_per_rank,micro_batches,idle,simulated,formula\n");
  const int ranks = world.size();
  for (const auto pipelining : {parallel::Pipelining::layerwise, parallel::Pipelining::gpipe,
                                parallel::Pipelining::one_f_one_b, parallel::Pipelining::interleaved}) {
    const int stages = pipelining == parallel::Pipelining::interleaved ? 2 : 1;
    for (const int micro_batches : {2, 4, 8, 16}) {
      const double idle =
          measure(groups, sink, pipelining, stages, micro_batches, milliseconds * 1e-3, steps);
      const double waits = ranks - 1;
      const double formula = pipelining == parallel::Pipelining::layerwise
                                 ? waits / ranks
                                 : waits / (stages * micro_batches + waits);
      if (world.rank() == 0) {
        const auto schedule = parallel::make_schedule(pipelining, ranks, stages, micro_batches);
        fmt::print("{},{},{},{},{:.4f},{:.4f},{:.4f}\n", parallel::name_of(pipelining), ranks, stages,
                   micro_batches, idle, parallel::simulate(schedule).idle_share, formula);
        std::fflush(stdout);
      }
    }
  }
  return 0;
}
