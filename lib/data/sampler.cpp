#include "data/sampler.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "core/error.hpp"
#include "kernels/draws.hpp"

namespace dtrain::data {
namespace {

/// Batches within which training_order sorts. With 29,000 pairs of sentences and batches of 128 the padded
/// tokens are 1.21 x the real ones (2.04 x unsorted, 1.24 with windows of 20, 1.21 with 100); with IMDB's
/// reviews and batches of 64 1.08 x (3.8 x unsorted).
constexpr std::int64_t kWindowBatches = 64;

/// The finaliser of MurmurHash3 (Appleby, public domain): every bit of an id moves every bit of the sum.
std::uint64_t mixed(std::int64_t id) {
  std::uint64_t x = static_cast<std::uint64_t>(id) + 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDULL;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53ULL;
  return x ^ (x >> 33);
}

std::vector<std::int64_t> counted(std::int64_t samples) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(samples));
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  return ids;
}

/// The stream called `name` of an epoch.
kernels::RandomKey key_of(std::string_view name, std::uint64_t seed, std::int64_t epoch) {
  return {.seed = seed,
          .purpose = kernels::Purpose::sampling,
          .major = static_cast<std::uint32_t>(epoch),
          .minor = 0,
          .stream = kernels::stream_of(name)};
}

}  // namespace

std::vector<std::int64_t> epoch_order(std::int64_t samples, Order order, std::uint64_t seed,
                                      std::int64_t epoch) {
  if (order == Order::shuffled) return kernels::permutation(samples, key_of("epoch_order", seed, epoch));
  return counted(samples);
}

std::vector<std::int64_t> training_order(std::int64_t samples, std::span<const std::int64_t> lengths,
                                         std::int64_t global_batch, std::uint64_t seed, std::int64_t epoch) {
  auto shuffled = epoch_order(samples, Order::shuffled, seed, epoch);
  if (lengths.empty()) return shuffled;
  require(std::ssize(lengths) == samples, "has another number of lengths than of samples",
          {.subject = "the sampler", .advice = "report this as a bug"});
  const std::int64_t batches = samples / global_batch;
  const std::int64_t whole = batches * global_batch;
  for (std::int64_t begin = 0; begin < whole; begin += kWindowBatches * global_batch) {
    const std::int64_t end = std::min(begin + kWindowBatches * global_batch, whole);
    // Stable: which of two equal lengths comes first is the shuffle's choice.
    std::stable_sort(shuffled.begin() + begin, shuffled.begin() + end,
                     [&](std::int64_t a, std::int64_t b) { return lengths[a] < lengths[b]; });
  }
  std::vector<std::int64_t> order;
  order.reserve(shuffled.size());
  for (const std::int64_t batch : kernels::permutation(batches, key_of("batch_order", seed, epoch))) {
    const auto begin = shuffled.begin() + batch * global_batch;
    order.insert(order.end(), begin, begin + global_batch);
  }
  order.insert(order.end(), shuffled.begin() + whole, shuffled.end());
  return order;
}

std::uint64_t sample_hash(std::span<const std::int64_t> ids) {
  std::uint64_t sum = 0;
  for (const std::int64_t id : ids) sum += mixed(id);
  return sum;
}

std::uint64_t epoch_hash(std::int64_t samples) {
  std::uint64_t sum = 0;
  for (std::int64_t id = 0; id < samples; ++id) sum += mixed(id);
  return sum;
}

}  // namespace dtrain::data
