#include "record/rank_recorder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "h5/attribute.hpp"
#include "h5/file.hpp"
#include "record/process.hpp"
#include "record/reserved_space.hpp"
#include "record/table_file.hpp"

namespace dtrain::record {
namespace {

constexpr std::uint64_t kStepRowsPerChunk = 512;  // 74 kB
constexpr std::uint64_t kRankRowsPerChunk = 32;
constexpr const char* kAside = ".partial";

h5::File create_rank_file(const std::string& path) {
  try {
    return h5::create_file(path + kAside);
  } catch (const Error& error) {
    throw usage_error(error.problem(), path, "name a folder that can be written with --output");
  }
}

}  // namespace

/// All objects are made at once: a file with nothing dirty but rows can be read after kill -9.
struct RankRecorder::LiveFile {
  h5::File file;
  ReservedSpace space;
  TableFile epochs;
  TableFile steps;
  TableFile events;
  TableFile samples;
  TableFile traffic;
  std::optional<TableFile> virtual_times;

  /// Made aside and renamed, so that what an earlier part left is there until it is in the new file.
  LiveFile(const RankRecorderOptions& options, const Rows& earlier)
      : file(create_rank_file(options.path)),
        space(options.path + kAside),
        epochs(make_table<RankEpochRow>(file.id(), "epochs", kRankRowsPerChunk)),
        steps(make_table<StepRow>(file.id(), "steps", kStepRowsPerChunk)),
        events(make_table<EventRow>(file.id(), "events", kRankRowsPerChunk)),
        samples(make_table<SamplesRow>(file.id(), "samples", kRankRowsPerChunk)),
        traffic(make_table<TrafficRow>(file.id(), "traffic", kRankRowsPerChunk)) {
    if (options.has_virtual_times)
      virtual_times = make_table<VirtualTimeRow>(file.id(), "virtual_times", kStepRowsPerChunk);
    h5::write_attribute(file.id(), "format", "dtrain.rank");
    h5::write_attribute(file.id(), "version", 1);
    h5::write_attribute(file.id(), "rank", options.rank);
    h5::write_attribute(file.id(), "hostname", this_host());
    h5::write_attribute(file.id(), "pid", static_cast<std::int64_t>(::getpid()));
    h5::flush(file);
    append(earlier);
    if (std::rename((options.path + kAside).c_str(), options.path.c_str()) != 0) {
      throw usage_error("cannot be replaced", options.path,
                        "name a folder that can be written with --output");
    }
  }

  // All of the burst or, when the disk is full, nothing of it.
  void append(const Rows& rows) {
    space.reserve(h5::file_bytes(file), bytes_of(rows));
    steps.append(rows.steps.data(), rows.steps.size());
    epochs.append(rows.epochs.data(), rows.epochs.size());
    events.append(rows.events.data(), rows.events.size());
    samples.append(rows.samples.data(), rows.samples.size());
    traffic.append(rows.traffic.data(), rows.traffic.size());
    if (virtual_times) virtual_times->append(rows.virtual_times.data(), rows.virtual_times.size());
    h5::flush(file);
    space.trim(h5::file_bytes(file));
  }

  // What HDF5 may add for these rows: their bytes, a chunk begun in each table, and its own index.
  static std::uint64_t bytes_of(const Rows& rows) {
    constexpr std::uint64_t kIndexBytes = 64 << 10;
    return (rows.steps.size() + kStepRowsPerChunk) * sizeof(StepRow) +
           (rows.epochs.size() + kRankRowsPerChunk) * sizeof(RankEpochRow) +
           (rows.events.size() + kRankRowsPerChunk) * sizeof(EventRow) +
           (rows.samples.size() + kRankRowsPerChunk) * sizeof(SamplesRow) +
           (rows.traffic.size() + kRankRowsPerChunk) * sizeof(TrafficRow) +
           (rows.virtual_times.size() + kStepRowsPerChunk) * sizeof(VirtualTimeRow) + kIndexBytes;
  }
};

/// Nothing of a file that is not there or cannot be read: a run is not lost for its records.
RankRecorder::Rows RankRecorder::rows_of_earlier_part(const std::string& path, const Kept& kept) {
  Rows rows;
  try {
    const h5::File file = h5::open_file(path, h5::Access::read);
    rows.steps = read_rows<StepRow>(file.id(), "steps");
    rows.epochs = read_rows<RankEpochRow>(file.id(), "epochs");
    rows.events = read_rows<EventRow>(file.id(), "events");
    rows.samples = read_rows<SamplesRow>(file.id(), "samples");
    if (H5Lexists(file.id(), "traffic", H5P_DEFAULT) > 0)  // a file of an older version has none
      rows.traffic = read_rows<TrafficRow>(file.id(), "traffic");
    if (H5Lexists(file.id(), "virtual_times", H5P_DEFAULT) > 0)
      rows.virtual_times = read_rows<VirtualTimeRow>(file.id(), "virtual_times");
  } catch (const Error&) {
    return {};
  }
  // Steps and epochs count from 1: the last rows of a burst that a kill has cut can be zeros.
  std::erase_if(rows.steps, [&](const StepRow& row) { return row.step == 0 || row.step > kept.step; });
  std::erase_if(rows.epochs,
                [&](const RankEpochRow& row) { return row.epoch == 0 || row.epoch > kept.epoch; });
  std::erase_if(rows.virtual_times,
                [&](const VirtualTimeRow& row) { return row.step == 0 || row.step > kept.step; });
  std::erase_if(rows.events, [](const EventRow& row) { return row.kind.view().empty(); });
  std::erase_if(rows.samples,
                [&](const SamplesRow& row) { return row.epoch == 0 || row.epoch > kept.epoch; });
  std::erase_if(rows.traffic,
                [&](const TrafficRow& row) { return row.epoch == 0 || row.epoch > kept.epoch; });
  return rows;
}

RankRecorder::RankRecorder(h5::Library& library, RankRecorderOptions options)
    : library_(library), options_(std::move(options)) {
  constexpr std::size_t kExpectedSteps = 4096;  // of a second; more only grow the vectors once
  gathered_.steps.reserve(kExpectedSteps);
  spare_.steps.reserve(kExpectedSteps);
  {
    const auto lock = library_.lock();
    const Rows earlier = options_.kept ? rows_of_earlier_part(options_.path, *options_.kept) : Rows{};
    file_ = std::make_unique<LiveFile>(options_, earlier);
  }
  thread_ = std::thread([this] { run(); });
}

RankRecorder::~RankRecorder() {
  try {
    close();
  } catch (const std::exception&) {  // callers that want to know call close()
  }
}

void RankRecorder::step(const StepRow& row) {
  if (options_.step_every == 0 || row.step % options_.step_every != 0) return;
  const std::lock_guard guard(mutex_);
  if (problem_.empty() && !stopping_) gathered_.steps.push_back(row);
}

void RankRecorder::epoch(const RankEpochRow& row) {
  const std::lock_guard guard(mutex_);
  if (problem_.empty() && !stopping_) gathered_.epochs.push_back(row);
}

void RankRecorder::event(std::string_view kind, std::string_view detail) {
  const EventRow row{.time_s = steady_s() - options_.start_s, .kind = kind, .detail = detail};
  const std::lock_guard guard(mutex_);
  if (problem_.empty() && !stopping_) gathered_.events.push_back(row);
}

void RankRecorder::samples(std::int64_t epoch, std::uint64_t hash) {
  const std::lock_guard guard(mutex_);
  if (problem_.empty() && !stopping_) gathered_.samples.push_back({epoch, static_cast<std::int64_t>(hash)});
}

void RankRecorder::traffic(const TrafficRow& row) {
  const std::lock_guard guard(mutex_);
  if (problem_.empty() && !stopping_) gathered_.traffic.push_back(row);
}

void RankRecorder::virtual_time(const VirtualTimeRow& row) {
  if (options_.step_every == 0 || row.step % options_.step_every != 0) return;
  const std::lock_guard guard(mutex_);
  if (problem_.empty() && !stopping_) gathered_.virtual_times.push_back(row);
}

void RankRecorder::flush() { write_burst(Wait::for_lock); }

void RankRecorder::close() {
  if (thread_.joinable()) {
    {
      const std::lock_guard guard(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
    write_burst(Wait::for_lock);
  }
  const std::lock_guard guard(file_mutex_);
  if (file_ == nullptr) return;
  const auto lock = library_.lock();
  file_.reset();
}

std::string RankRecorder::problem() const {
  const std::lock_guard guard(mutex_);
  return problem_;
}

void RankRecorder::run() {
  const std::chrono::duration<double> interval(options_.flush_interval_s);
  std::unique_lock guard(mutex_);
  while (!wake_.wait_for(guard, interval, [this] { return stopping_; })) {
    guard.unlock();
    write_burst(Wait::if_free);
    touch();
    guard.lock();
  }
}

void RankRecorder::write_burst(Wait how) {
  const std::lock_guard file_guard(file_mutex_);
  if (file_ == nullptr) return;
  const auto lock = how == Wait::for_lock ? library_.lock() : library_.try_lock();
  if (!lock.owns_lock()) return;  // a checkpoint is being written: the next second will do
  {
    const std::lock_guard guard(mutex_);
    if (gathered_.empty()) return;
    std::swap(gathered_, spare_);
  }
  try {
    file_->append(spare_);
  } catch (const Error& error) {
    const std::lock_guard guard(mutex_);
    problem_ = error.what();
    gathered_ = {};
  }
  if (!problem().empty()) file_.reset();  // a file whose write failed is not written again
  spare_.clear();
}

// The file's time says that this rank lives, also when a step takes minutes.
void RankRecorder::touch() const { ::utimensat(AT_FDCWD, options_.path.c_str(), nullptr, 0); }

}  // namespace dtrain::record
