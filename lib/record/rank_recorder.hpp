#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "h5/library.hpp"
#include "record/rows.hpp"

namespace dtrain::record {

/// What a rank's recorder is to do.
struct RankRecorderOptions {
  std::string path;             ///< rank_path(folder, rank); its folder exists.
  int rank = 0;                 ///< In MPI_COMM_WORLD at the start.
  int step_every = 1;           ///< Records each Nth step; 0: none.
  double flush_interval_s = 1;  ///< Between two bursts.
  double start_s = 0;           ///< steady_s() at the run's start_time_utc: events count from there.
  /// Of what an earlier part of the run left at `path` the rows up to this step and epoch are kept; nothing
  /// when it starts anew. A file that cannot be read in full is set aside as PATH.damaged.
  std::optional<Kept> kept = std::nullopt;
  bool has_virtual_times = false;  ///< There is a virtual clock: the file gets a table of its times.
};

/// One rank's live file. Rows are gathered in memory (nanoseconds on the calling thread) and written by a
/// thread of its own in one burst a second; what was written is readable after kill -9. When the library's
/// lock is taken (a checkpoint is being written) it keeps gathering. Calls may come from any thread.
///
/// A full disk does not stop the run: recording ends, problem() says why.
class RankRecorder {
 public:
  /// Creates the file with all its datasets and flushes it. Throws Error (exit code 2) when it cannot.
  RankRecorder(h5::Library& library, RankRecorderOptions options);
  ~RankRecorder();  ///< close(), silently.
  RankRecorder(const RankRecorder&) = delete;
  RankRecorder& operator=(const RankRecorder&) = delete;

  void step(const StepRow& row);  ///< Kept when row.step is a multiple of step_every.
  void epoch(const RankEpochRow& row);
  void event(std::string_view kind, std::string_view detail);
  void samples(std::int64_t epoch, std::uint64_t hash);
  void traffic(const TrafficRow& row);
  void virtual_time(const VirtualTimeRow& row);  ///< Kept as step() keeps; has_virtual_times.

  /// Writes what was gathered and returns when it is with the operating system.
  void flush();

  /// Flushes and closes the file; further rows are dropped. Call it before rank 0 merges (a barrier between).
  void close();

  /// Why recording stopped early; empty when it did not.
  std::string problem() const;

  /// Which tables of an earlier part could not be read, and why; empty: none.
  const std::string& lost() const { return lost_; }

  /// Drops the rows beyond `kept` from the file at `path` of a rank that this part of the run does not have.
  /// What the file says of that rank's process stays. Returns what lost() says; a file that cannot be opened
  /// is left as it is. Throws Error (exit code 2) when the folder cannot be written.
  static std::string trim(h5::Library& library, const std::string& path, int rank, const Kept& kept);

 private:
  struct Rows {
    std::vector<StepRow> steps;
    std::vector<RankEpochRow> epochs;
    std::vector<EventRow> events;
    std::vector<SamplesRow> samples;
    std::vector<TrafficRow> traffic;
    std::vector<VirtualTimeRow> virtual_times;
    bool empty() const {
      return steps.empty() && epochs.empty() && events.empty() && samples.empty() && traffic.empty() &&
             virtual_times.empty();
    }
    void clear() {  // keeps the memory
      steps.clear();
      epochs.clear();
      events.clear();
      samples.clear();
      traffic.clear();
      virtual_times.clear();
    }
  };
  /// What a file says of the process that wrote it.
  struct Writer {
    std::string hostname;
    std::int64_t pid = 0;
  };
  /// What an earlier part left.
  struct Earlier {
    Rows rows;
    std::optional<Writer> writer;    // nothing: the file does not say
    bool is_open = false;            // its file could be opened
    bool has_virtual_times = false;  // and has the table
    std::string lost;                // tables, with the reasons
  };
  struct LiveFile;  // the HDF5 side
  static Earlier earlier_part(const std::string& path, const Kept& kept);
  static void drop_rows_beyond(const Kept& kept, Rows& rows);

  enum class Wait { if_free, for_lock };
  void run();                  // the thread
  void write_burst(Wait how);  // moves gathered_ to the file
  void touch() const;

  h5::Library& library_;
  const RankRecorderOptions options_;
  std::string lost_;
  mutable std::mutex mutex_;  // guards gathered_, stopping_, problem_
  std::condition_variable wake_;
  Rows gathered_;
  bool stopping_ = false;
  std::string problem_;
  std::mutex file_mutex_;  // guards file_ and spare_; taken before the library's lock
  Rows spare_;             // what is being written; swapped with gathered_ so that neither allocates
  std::unique_ptr<LiveFile> file_;
  std::thread thread_;
};

}  // namespace dtrain::record
