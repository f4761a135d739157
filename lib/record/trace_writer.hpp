#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/span_sink.hpp"
#include "record/trace_window.hpp"

namespace dtrain::record {

/// Whether a trace begins, or continues what an earlier part of the run has left.
enum class TraceBegin { anew, continued };

/// One rank's part of the trace, `ranks/trace-00000.json`: one Chrome trace event a line. Rank 0 joins the
/// parts at the end. pid is the rank, tid 0 the compute thread, 1 communication, 2 transfers, 3 what a device
/// computes. Spans of a step have its number among their `args`. Any thread may call. Source: Trace Event
/// Format, "Complete Events".
class TraceWriter {
 public:
  /// `start_ns`: steady_ns() of this rank at the moment that is zero for all ranks (after a barrier), which
  /// lines up nodes whose clocks differ. Throws Error (exit code 2) when the file cannot be made.
  TraceWriter(const std::string& path, int rank, std::int64_t start_ns, TraceBegin begin = TraceBegin::anew,
              TraceWindow window = {});
  ~TraceWriter();  ///< close(), silently.
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  /// Spans that end from now on are of this step; 0: of what lies between steps.
  void begin_step(std::int64_t step) { step_.store(step, std::memory_order_relaxed); }

  /// A span of the compute thread (an exclusive phase) or an operation beside it. `name` outlives the writer.
  void span(Phase phase, std::string_view name, std::int64_t start_ns, std::int64_t end_ns);

  /// What a device did for such a phase.
  void device_span(Phase phase, std::string_view name, std::int64_t start_ns, std::int64_t end_ns);

  /// Writes what is buffered and closes; later spans are dropped. Throws Error when the disk was full.
  void close();

 private:
  struct Span {
    std::string_view name;
    std::int64_t start_ns;
    std::int64_t end_ns;
    Phase phase;
    int thread;
    std::int64_t step = 0;
  };
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void add(Span span);
  void write_spans();  // the caller holds mutex_

  std::mutex mutex_;
  std::vector<Span> spans_;  // never grows beyond what it reserved
  std::string path_;
  int rank_;
  std::int64_t start_ns_;
  const TraceWindow window_;
  std::atomic<std::int64_t> step_ = 0;
  bool failed_ = false;
  std::unique_ptr<std::FILE, CloseFile> file_;
};

/// Joins the parts in `folder`/ranks to `folder`/trace.json and removes them. A part of a killed rank is
/// taken up to its last whole line. Events that trace.json has of an earlier part of the run stay. Throws
/// Error.
void merge_traces(const std::string& folder);

}  // namespace dtrain::record
