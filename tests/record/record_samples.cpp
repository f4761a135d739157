// For the Python tests beside it, which read with h5py and TensorBoard what this writes.
//   record_samples results FOLDER        a whole small run
//   record_samples live FOLDER           records until its standard input ends; a line after each flush
//   record_samples steps FILE            records steps as fast as it can, for ever: to be killed
//   record_samples tensorboard FOLDER    a few scalars
//   record_samples tensorboard_twice FOLDER   those of a run that trained some steps again
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "h5/library.hpp"
#include "record/rank_recorder.hpp"
#include "record/results_writer.hpp"
#include "record/step_curves.hpp"
#include "record/tensorboard_writer.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::record;

RunInfo run_info() {
  return {.name = "sample",
          .model = "seq2seq",
          .dataset = "synthetic",
          .strategy = "ddp",
          .mesh = "data=2,pipe=1,tensor=1",
          .world_size = 2,
          .start_time_utc = utc_now(),
          .dtrain_version = "0.1.0",
          .command_line = "dtrain --model seq2seq",
          .config = "model = \"seq2seq\"\n"};
}

RankEpochRow rank_epoch(std::int64_t epoch, int rank) {
  return {.epoch = epoch,
          .train_loss = 0.5 + rank,
          .samples = 32,
          .train_time_s = 3,
          .phases = {.data_time_s = 0.5,
                     .forward_time_s = 1,
                     .backward_time_s = 1,
                     .communication_time_s = 7,
                     .optimizer_time_s = 0.25,
                     .other_time_s = 0.25,
                     .transfer_time_s = 9},
          .bytes_sent = 1000 + rank,
          .bytes_received = 2000,
          .peak_memory_bytes = std::int64_t{5} << 32};
}

void write_results(const std::string& folder) {
  h5::Library library;
  ResultsWriter results(library, folder, run_info(), {{"validation_loss_free_running", "1"}});
  std::vector<std::unique_ptr<RankRecorder>> recorders;
  for (int rank = 0; rank < 2; ++rank) {
    recorders.push_back(std::make_unique<RankRecorder>(
        library, RankRecorderOptions{.path = rank_path(folder, rank), .rank = rank, .start_s = steady_s()}));
  }
  results.topology(
      {{.rank = 0, .hostname = "größe", .device = "cpu", .cpus = "0-1"},
       {.rank = 1, .hostname = "node-1", .device = "cuda:0", .device_uuid = "GPU-1", .data_index = 1}});
  for (std::int64_t epoch = 1; epoch <= 3; ++epoch) {
    for (int rank = 0; rank < 2; ++rank) {
      for (std::int64_t i = 1; i <= 4; ++i) {
        const std::int64_t step = (epoch - 1) * 4 + i;
        recorders[rank]->step({.step = step,
                               .epoch = epoch,
                               .loss = 0.25,
                               .weight = 8,
                               .time_s = 0.5,
                               .ended_at_s = 0.5 * static_cast<double>(step)});
      }
      recorders[rank]->epoch(rank_epoch(epoch, rank));
      recorders[rank]->traffic(
          {.epoch = epoch, .peer = 1 - rank, .bytes_sent = 1000 + rank, .bytes_received = 2000});
      recorders[rank]->samples(epoch, 0x8000000000000000U + static_cast<std::uint64_t>(rank));
      recorders[rank]->event("epoch", "ended");
    }
    results.epoch({.epoch = epoch,
                   .train_loss = 1.0 / static_cast<double>(epoch),
                   .samples = 64,
                   .train_time_s = 3,
                   .samples_per_s = 64 / 3.0,
                   .model_flops_per_s = 1e9,
                   .learning_rate = 0.1},
                  std::vector<double>{2.0 * static_cast<double>(epoch)});
  }
  results.test({.loss = 0.125, .samples = 10, .time_s = 0.5, .checkpoint = "checkpoints/best"},
               std::vector<double>{2.5});
  for (const auto& recorder : recorders) recorder->close();
  results.finish(Status::completed);
}

void record_live(const std::string& folder) {
  h5::Library library;
  ResultsWriter results(library, folder, run_info());
  RankRecorder recorder(library, {.path = rank_path(folder, 0), .flush_interval_s = 0.001});
  std::int64_t step = 0;
  for (std::string line; std::getline(std::cin, line);) {
    for (int i = 0; i < 300; ++i)
      recorder.step({.step = ++step, .epoch = 1, .loss = static_cast<double>(step)});
    recorder.flush();
    std::cout << step << std::endl;
  }
}

void record_for_ever(const std::string& path) {
  h5::Library library;
  RankRecorder recorder(library, {.path = path, .flush_interval_s = 0.05});
  for (std::int64_t step = 1;; ++step) {
    recorder.step({.step = step, .epoch = 1, .loss = static_cast<double>(step)});
    if (step % 200 == 0) {
      recorder.flush();
      const std::string line = std::to_string(step) + "\n";
      if (::write(STDOUT_FILENO, line.data(), line.size()) < 0)
        return;  // at once: nothing buffered when killed
    }
    ::usleep(20);
  }
}

void write_curves(const std::string& folder) {
  TensorBoardWriter writer(folder);
  for (std::int64_t step = 1; step <= 300; ++step)
    writer.scalar("train/loss", step, 1.0 / static_cast<double>(step));
  writer.scalar("validation/accuracy", 1, kNoValue);
  writer.scalar("validation/accuracy", 2, 0.975);
  writer.flush();
  StepCurves curves(writer, 1);
  for (int step = 1; step <= 10; ++step)
    curves.add({.number = step,
                .loss = 2.0 * step,
                .weight = 2,
                .samples = 32,
                .time_s = 0.3,
                .gradient_norm = 0.5,
                .learning_rate = 0.1});
}

/// A run that was killed in step 130 of its second epoch of 100 steps, and went on from step 120.
void write_curves_twice(const std::string& folder) {
  const auto train = [&](std::int64_t first, std::int64_t last, const std::optional<Kept>& kept, float loss) {
    TensorBoardWriter writer(folder, kept);
    for (std::int64_t step = first; step <= last; ++step) {
      writer.scalar("train_by_step/loss", step, loss);
      if (step % 100 == 0) writer.scalar("train/loss", step / 100, loss);
      if (step % 125 == 0) writer.scalar("validation_by_step/loss", step, loss);
    }
    writer.flush();
  };
  train(1, 130, std::nullopt, 1);
  {
    const auto first = std::filesystem::directory_iterator(folder)->path();
    std::ofstream(first, std::ios::app | std::ios::binary) << "cut";  // by the kill
  }
  train(121, 200, Kept{.step = 120, .epoch = 1}, 2);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string what = argv[1];
  const std::string path = argv[2];
  if (what == "results") write_results(path);
  if (what == "live") record_live(path);
  if (what == "steps") record_for_ever(path);
  if (what == "tensorboard") write_curves(path);
  if (what == "tensorboard_twice") write_curves_twice(path);
  return 0;
}
