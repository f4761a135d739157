#include "record/rank_recorder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/own_place.hpp"
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

/// What `tables` of the damaged file at `path` come to, for a person; empty where there are none. The file is
/// about to be replaced and gets a second name, or a copy where the file system has no such names. A run does
/// not end for its records.
std::string lost_in_words(const std::string& path, const std::string& tables) {
  if (tables.empty()) return {};
  const auto damaged = free_name(path + ".damaged");
  std::error_code error;
  std::filesystem::create_hard_link(path, damaged, error);
  if (error) std::filesystem::copy_file(path, damaged, error);
  return (error ? "the damaged file cannot be kept (" + error.message() + ")"
                : "the damaged file is kept as " + damaged.filename().string()) +
         "; rows of an earlier part of the run could not be read: " + tables;
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
  LiveFile(const RankRecorderOptions& options, const Rows& earlier, bool had_virtual_times,
           const std::optional<Writer>& writer)
      : file(create_rank_file(options.path)),
        space(options.path + kAside),
        epochs(make_table<RankEpochRow>(file.id(), "epochs", kRankRowsPerChunk)),
        steps(make_table<StepRow>(file.id(), "steps", kStepRowsPerChunk)),
        events(make_table<EventRow>(file.id(), "events", kRankRowsPerChunk)),
        samples(make_table<SamplesRow>(file.id(), "samples", kRankRowsPerChunk)),
        traffic(make_table<TrafficRow>(file.id(), "traffic", kRankRowsPerChunk)) {
    if (options.has_virtual_times || had_virtual_times)
      virtual_times = make_table<VirtualTimeRow>(file.id(), "virtual_times", kStepRowsPerChunk);
    h5::write_attribute(file.id(), "format", "dtrain.rank");
    h5::write_attribute(file.id(), "version", 1);
    h5::write_attribute(file.id(), "rank", options.rank);
    if (writer) {
      h5::write_attribute(file.id(), "hostname", writer->hostname);
      h5::write_attribute(file.id(), "pid", writer->pid);
    }
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

/// Nothing of a file that is not there, and of one that is damaged the tables that can be read: a run is not
/// lost for its records.
RankRecorder::Earlier RankRecorder::earlier_part(const std::string& path, const Kept& kept) {
  Earlier earlier;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return earlier;
  try {
    const h5::File file = h5::open_file(path, h5::Access::read);
    earlier.is_open = true;
    const auto read = [&](auto& rows, const char* name) {
      try {
        rows = read_rows<typename std::remove_reference_t<decltype(rows)>::value_type>(file.id(), name);
      } catch (const Error& error) {
        earlier.lost += (earlier.lost.empty() ? "" : ", ") + std::string(name) + " (" + error.problem() + ")";
      }
    };
    const auto is_there = [&](const char* name) { return H5Lexists(file.id(), name, H5P_DEFAULT) > 0; };
    read(earlier.rows.steps, "steps");
    read(earlier.rows.epochs, "epochs");
    read(earlier.rows.events, "events");
    read(earlier.rows.samples, "samples");
    if (is_there("traffic")) read(earlier.rows.traffic, "traffic");  // a file of an older version has none
    earlier.has_virtual_times = is_there("virtual_times");
    if (earlier.has_virtual_times) read(earlier.rows.virtual_times, "virtual_times");
    try {
      earlier.writer = {h5::read_string_attribute(file.id(), "hostname"),
                        h5::read_int_attribute(file.id(), "pid")};
    } catch (const Error&) {  // it does not say which process wrote it
      earlier.writer.reset();
    }
  } catch (const Error& error) {
    earlier.lost = "all tables (" + error.problem() + ")";
  }
  drop_rows_beyond(kept, earlier.rows);
  return earlier;
}

/// Steps and epochs count from 1: the last rows of a burst that a kill has cut can be zeros.
void RankRecorder::drop_rows_beyond(const Kept& kept, Rows& rows) {
  const auto by_step = [&](const auto& row) { return row.step == 0 || row.step > kept.step; };
  const auto by_epoch = [&](const auto& row) { return row.epoch == 0 || row.epoch > kept.epoch; };
  std::erase_if(rows.steps, by_step);
  std::erase_if(rows.virtual_times, by_step);
  std::erase_if(rows.epochs, by_epoch);
  std::erase_if(rows.samples, by_epoch);
  std::erase_if(rows.traffic, by_epoch);
  std::erase_if(rows.events, [](const EventRow& row) { return row.kind.view().empty(); });
}

RankRecorder::RankRecorder(h5::Library& library, RankRecorderOptions options)
    : library_(library), options_(std::move(options)) {
  constexpr std::size_t kExpectedSteps = 4096;  // of a second; more only grow the vectors once
  gathered_.steps.reserve(kExpectedSteps);
  spare_.steps.reserve(kExpectedSteps);
  std::string lost;
  {
    const auto lock = library_.lock();
    const Earlier earlier = options_.kept ? earlier_part(options_.path, *options_.kept) : Earlier{};
    lost = lost_in_words(options_.path, earlier.lost);
    file_ = std::make_unique<LiveFile>(options_, earlier.rows, earlier.has_virtual_times,
                                       Writer{this_host(), static_cast<std::int64_t>(::getpid())});
  }
  if (!lost.empty()) {
    event("records_lost", lost);
    lost_ = options_.path + ": " + lost;
  }
  thread_ = std::thread([this] { run(); });
}

std::string RankRecorder::trim(h5::Library& library, const std::string& path, int rank, const Kept& kept) {
  const auto lock = library.lock();
  const Earlier earlier = earlier_part(path, kept);
  if (!earlier.is_open) return earlier.lost.empty() ? "" : path + ": cannot be read: " + earlier.lost;
  const std::string lost = lost_in_words(path, earlier.lost);
  const LiveFile trimmed({.path = path, .rank = rank}, earlier.rows, earlier.has_virtual_times,
                         earlier.writer);
  return lost.empty() ? "" : path + ": " + lost;
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
