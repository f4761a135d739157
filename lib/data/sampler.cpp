#include "data/sampler.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string_view>

#include "core/error.hpp"
#include "kernels/philox.hpp"

namespace dtrain::data {
namespace {

__extension__ typedef unsigned __int128 Wide;  // for the upper half of a 64-bit product

/// Batches within which training_order sorts. With 29,000 pairs of sentences and batches of 128 the padded
/// tokens are 1.21 x the real ones (2.04 x unsorted, 1.24 with windows of 20, 1.21 with 100); with IMDB's
/// reviews and batches of 64 1.08 x (3.8 x unsorted).
constexpr std::int64_t kWindowBatches = 64;

/// Numbers of [0, bound) from one stream, made a buffer at a time.
class BufferedDraws {
 public:
  explicit BufferedDraws(const kernels::RandomKey& key) : key_(key) {}

  /// Multiplication instead of a remainder: the bias is below bound / 2^64.
  std::int64_t below(std::int64_t bound) {
    if (next_ == words_.size()) refill();
    const std::uint64_t low = words_[next_];
    const std::uint64_t high = words_[next_ + 1];
    next_ += 2;
    const Wide product = static_cast<Wide>((high << 32) | low) * static_cast<std::uint64_t>(bound);
    return static_cast<std::int64_t>(product >> 64);
  }

 private:
  void refill() {
    kernels::philox_words(words_.data(), words_.size() / 4, key_, block_);
    block_ += words_.size() / 4;
    next_ = 0;
  }
  kernels::RandomKey key_;
  std::uint64_t block_ = 0;
  std::array<std::uint32_t, 1024> words_{};
  std::size_t next_ = words_.size();
};

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

/// 0, 1, ..., n - 1 shuffled by the stream called `name`.
std::vector<std::int64_t> permutation(std::int64_t n, std::string_view name, std::uint64_t seed,
                                      std::int64_t epoch) {
  std::vector<std::int64_t> ids = counted(n);
  BufferedDraws draws({.seed = seed,
                       .purpose = kernels::Purpose::sampling,
                       .major = static_cast<std::uint32_t>(epoch),
                       .minor = 0,
                       .stream = kernels::stream_of(name)});
  for (std::int64_t i = n - 1; i > 0; --i) std::swap(ids[i], ids[draws.below(i + 1)]);
  return ids;
}

}  // namespace

std::vector<std::int64_t> epoch_order(std::int64_t samples, Order order, std::uint64_t seed,
                                      std::int64_t epoch) {
  if (order == Order::shuffled) return permutation(samples, "epoch_order", seed, epoch);
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
  for (const std::int64_t batch : permutation(batches, "batch_order", seed, epoch)) {
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
