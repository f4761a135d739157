// Shards from a warm cache beside read() into a reused 1 MiB buffer, and what a batch costs the compute
// thread.
//   dtrain_perf_data [FOLDER]     a staged dataset; without one a synthetic set of 256 MiB is made and
//   removed
// Prints a table of medians and, for each, the least and the most of the pairs.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "data/import/stage.hpp"
#include "data/loader.hpp"
#include "data/sample_sources.hpp"
#include "data/shards/shard.hpp"
#include "h5/library.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::data;

constexpr int kPairs = 9;
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

double seconds_of(const std::function<void()>& action) {
  const double start = steady_s();
  action();
  return steady_s() - start;
}

std::string spread(std::vector<double> values, const char* unit) {
  std::sort(values.begin(), values.end());
  return fmt::format("{:.2f} {} ({:.2f} to {:.2f})", values[values.size() / 2], unit, values.front(),
                     values.back());
}

/// The whole file, as fast as the system hands it out.
std::size_t read_file(const std::string& file, std::vector<std::byte>& buffer) {
  const int descriptor = ::open(file.c_str(), O_RDONLY);
  std::size_t bytes = 0;
  for (ssize_t got = 1; got > 0; bytes += static_cast<std::size_t>(got))
    got = ::read(descriptor, buffer.data(), buffer.size());
  ::close(descriptor);
  return bytes;
}

/// Every row of the column, a buffer at a time.
std::size_t read_column(const Column& column, std::vector<std::byte>& buffer) {
  const auto rows = static_cast<std::int64_t>(buffer.size() / column.row_bytes());
  for (std::int64_t row = 0; row < column.rows(); row += rows)
    column.read(row, std::min(rows, column.rows() - row), buffer.data());
  return static_cast<std::size_t>(column.rows()) * column.row_bytes();
}

void measure_reading(const Dataset& dataset, h5::Library& library) {
  const std::string file = dataset.folder() / dataset.info().splits.at("train").shards.at(0).file;
  const auto requests = arrays_of_task(dataset.info().task);
  std::vector<std::byte> buffer(kBufferBytes);
  read_file(file, buffer);  // warm
  std::vector<double> plain;
  std::vector<double> checking;
  std::vector<double> verified;
  std::vector<double> checking_ratio;
  std::vector<double> verified_ratio;
  for (int pair = 0; pair < kPairs; ++pair) {
    const auto rate = [&](const std::function<std::size_t()>& action) {
      std::size_t bytes = 0;
      const double time_s = seconds_of([&] { bytes = action(); });
      return static_cast<double>(bytes) / time_s * 1e-9;
    };
    const auto inputs = open_columns(file, {requests.front()}, library, {}).front();
    plain.push_back(rate([&] { return read_file(file, buffer); }));
    checking.push_back(rate([&] { return read_column(*inputs, buffer); }));
    verified.push_back(rate([&] { return read_column(*inputs, buffer); }));
    checking_ratio.push_back(checking.back() / plain.back());
    verified_ratio.push_back(verified.back() / plain.back());
  }
  fmt::print("reading {} ({} MiB), {} pairs: median (least to most)\n", file,
             std::filesystem::file_size(file) >> 20, kPairs);
  fmt::print("  read() into 1 MiB     {}\n", spread(plain, "GB/s"));
  fmt::print("  column, checking      {}, of read() {}\n", spread(checking, "GB/s"),
             spread(checking_ratio, "x"));
  fmt::print("  column, verified      {}, of read() {}\n", spread(verified, "GB/s"),
             spread(verified_ratio, "x"));
}

/// Microseconds that a typical next() takes (the median of an epoch's) while the caller computes for
/// `compute_us` between two batches.
void measure_loader(const Dataset& dataset, const char* name, LoaderOptions::Drive drive,
                    std::size_t cache_bytes, std::int64_t batch, double compute_us) {
  const Dataset opened = dataset;
  Loader loader(opened.source("train", {.cache_bytes = cache_bytes}), {.drive = drive});
  const std::int64_t samples = opened.info().samples("train");
  const std::int64_t steps = std::min<std::int64_t>(samples / batch, 400);
  std::vector<double> medians;
  for (int epoch = 0; epoch < kPairs + 1; ++epoch) {
    const auto order = epoch_order(samples, Order::shuffled, 1, epoch);
    std::vector<PieceRequest> requests;
    for (std::int64_t step = 0; step < steps; ++step)
      requests.push_back(
          {.step = step, .samples = {order.begin() + step * batch, order.begin() + (step + 1) * batch}});
    loader.start(std::move(requests));
    std::vector<double> waits_us;
    for (std::int64_t step = 0; step < steps; ++step) {
      waits_us.push_back(seconds_of([&] { loader.next(); }) * 1e6);
      const double until = steady_s() + compute_us * 1e-6;
      while (steady_s() < until) {
      }
    }
    std::nth_element(waits_us.begin(), waits_us.begin() + steps / 2, waits_us.end());
    if (epoch > 0)
      medians.push_back(waits_us[static_cast<std::size_t>(steps / 2)]);  // the first one verifies
  }
  fmt::print("  {:<34} batch {:>3}: {}\n", name, batch, spread(medians, "us"));
}

}  // namespace

int main(int argc, char** argv) {
  const auto scratch =
      std::filesystem::temp_directory_path() / ("dtrain-perf-data-" + std::to_string(::getpid()));
  try {
    h5::Library library;
    std::filesystem::path folder = argc > 1 ? argv[1] : "";
    if (folder.empty()) {
      stage_synthetic({.name = "images", .data_root = scratch},
                      {.train_samples = 342'000, .validation_samples = 1}, library);
      folder = scratch / "images";
    }
    measure_reading(Dataset::open(folder, library), library);
    fmt::print("Loader::next(), 200 us of computing between batches\n");
    const std::size_t all = std::size_t{1} << 40;
    for (const std::int64_t batch : {32, 64}) {
      const auto open = [&] { return Dataset::open(folder, library); };
      measure_loader(open(), "inline, chunks kept in memory", LoaderOptions::Drive::inline_call, all, batch,
                     200);
      measure_loader(open(), "inline, page cache", LoaderOptions::Drive::inline_call, 0, batch, 200);
      measure_loader(open(), "thread, chunks kept in memory", LoaderOptions::Drive::thread, all, batch, 200);
      measure_loader(open(), "thread, page cache", LoaderOptions::Drive::thread, 0, batch, 200);
    }
    std::filesystem::remove_all(scratch);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    std::filesystem::remove_all(scratch);
    return static_cast<int>(error.code());
  }
}
