// Element-wise kernels, one thread; LibTorch's own beside them where it has one.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <vector>

#include "kernels/dropout.hpp"
#include "kernels/fill.hpp"
#include "kernels/normalize.hpp"
#include "kernels/reduce.hpp"
#include "kernels/update.hpp"

namespace {

using namespace dtrain::kernels;

constexpr RandomKey kKey{.seed = 1, .purpose = Purpose::dropout, .major = 1, .minor = 0, .stream = 3};

std::vector<float> numbers(std::size_t n) {
  std::vector<float> values(n);
  fill_normal(values.data(), n, kKey, 0, 0.0F, 1.0F);
  return values;
}

void per_element(benchmark::State& state) {
  state.counters["ns_per_element"] =
      benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)) * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void dropout_ours(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const auto input = numbers(n);
  std::vector<float> output(n);
  for (auto _ : state) dropout(output.data(), input.data(), {.columns = n}, kKey, 0.1);
  per_element(state);
}

void dropout_libtorch(benchmark::State& state) {
  at::set_num_threads(1);
  const at::Tensor input = at::randn({state.range(0)});
  for (auto _ : state) benchmark::DoNotOptimize(at::dropout(input, 0.1, true));
  per_element(state);
}

void philox_fill_uniform(benchmark::State& state) {
  std::vector<float> values(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) fill_uniform(values.data(), values.size(), kKey, 0, -1.0F, 1.0F);
  per_element(state);
}

void philox_fill_normal(benchmark::State& state) {
  std::vector<float> values(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) fill_normal(values.data(), values.size(), kKey, 0, 0.0F, 1.0F);
  per_element(state);
}

void normalize_bytes(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const std::vector<std::uint8_t> bytes(n, 17);
  std::vector<float> output(n);
  const float mean = 0.1307F;
  const float deviation = 0.3081F;
  for (auto _ : state) normalize_u8(output.data(), bytes.data(), 1, 1, n, &mean, &deviation);
  per_element(state);
}

void sum_of_squares(benchmark::State& state) {
  const auto values = numbers(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(sum_of_squares_and_nonfinite(values.data(), values.size()));
  per_element(state);
}

void hash(benchmark::State& state) {
  const auto values = numbers(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(hash_bytes(values.data(), values.size() * sizeof(float)));
  per_element(state);
}

void copy_scaled(benchmark::State& state) {
  const auto values = numbers(static_cast<std::size_t>(state.range(0)));
  std::vector<float> output(values.size());
  for (auto _ : state) cast_scale(output.data(), values.data(), values.size(), 0.5);
  per_element(state);
}

void adam_ours(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  auto parameters = numbers(n);
  const auto gradients = numbers(n);
  std::vector<float> first(n);
  std::vector<float> second(n);
  const AdamUpdate update{.scale = 0.5, .learning_rate = 1e-3, .bias1 = 0.1, .bias2 = 0.001};
  for (auto _ : state)
    adam_update(parameters.data(), gradients.data(), first.data(), second.data(), n, update);
  per_element(state);
}

void adam_libtorch(benchmark::State& state) {
  at::set_num_threads(1);
  const at::Tensor parameters = at::randn({state.range(0)});
  const at::Tensor gradients = at::randn({state.range(0)});
  const at::Tensor first = at::zeros_like(parameters);
  const at::Tensor second = at::zeros_like(parameters);
  const at::Tensor steps = at::ones({});
  for (auto _ : state) {
    at::_fused_adam_({parameters}, {gradients}, {first}, {second}, {}, {steps}, 1e-3, 0.9, 0.999, 0.0, 1e-8,
                     false, false);
  }
  per_element(state);
}

void sgd_ours(benchmark::State& state) {
  const auto n = static_cast<std::size_t>(state.range(0));
  auto parameters = numbers(n);
  const auto gradients = numbers(n);
  std::vector<float> momentum(n);
  const SgdUpdate update{.scale = 0.5, .learning_rate = 1e-3, .momentum = 0.9, .weight_decay = 5e-4};
  for (auto _ : state) sgd_update(parameters.data(), gradients.data(), momentum.data(), n, update);
  per_element(state);
}

void sgd_libtorch(benchmark::State& state) {
  at::set_num_threads(1);
  const at::Tensor parameters = at::randn({state.range(0)});
  const at::Tensor gradients = at::randn({state.range(0)});
  const at::Tensor momentum = at::zeros_like(parameters);
  for (auto _ : state) {
    at::_fused_sgd_({parameters}, {gradients}, {momentum}, 5e-4, 0.9, 1e-3, 0.0, false, false, false);
  }
  per_element(state);
}

#define DTRAIN_SIZES ->RangeMultiplier(16)->Range(1 << 14, 1 << 22)
BENCHMARK(dropout_ours) DTRAIN_SIZES;
BENCHMARK(dropout_libtorch) DTRAIN_SIZES;
BENCHMARK(philox_fill_uniform) DTRAIN_SIZES;
BENCHMARK(philox_fill_normal)->Arg(1 << 18);
BENCHMARK(normalize_bytes) DTRAIN_SIZES;
BENCHMARK(sum_of_squares) DTRAIN_SIZES;
BENCHMARK(hash) DTRAIN_SIZES;
BENCHMARK(copy_scaled) DTRAIN_SIZES;
BENCHMARK(adam_ours) DTRAIN_SIZES;
BENCHMARK(adam_libtorch) DTRAIN_SIZES;
BENCHMARK(sgd_ours) DTRAIN_SIZES;
BENCHMARK(sgd_libtorch) DTRAIN_SIZES;
#undef DTRAIN_SIZES

}  // namespace
