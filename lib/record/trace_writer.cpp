#include "record/trace_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "record/run_folder.hpp"

namespace dtrain::record {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferedSpans = 16384;

constexpr int kDeviceThread = 3;

int thread_of(Phase phase) {
  if (phase == Phase::communication) return 1;
  return phase == Phase::transfer ? 2 : 0;
}

std::string named(int rank, int thread, std::string_view what, std::string_view name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what, rank,
                     thread, name);
}

// What the viewer shows instead of numbers.
std::string names_of_rank(int rank) {
  return named(rank, 0, "process_name", fmt::format("rank {}", rank)) + "\n" +
         named(rank, 0, "thread_name", "compute") + "\n" + named(rank, 1, "thread_name", "communication") +
         "\n" + named(rank, 2, "thread_name", "transfer") + "\n" +
         named(rank, kDeviceThread, "thread_name", "device") + "\n";
}

std::vector<fs::path> parts_in(const fs::path& folder) {
  std::vector<fs::path> parts;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with("trace-") && entry.path().extension() == ".json") {
      parts.push_back(entry.path());
    }
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

/// Cuts off what stands behind the last whole line: the rank was killed while writing.
void cut_to_whole_lines(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return;
  std::vector<char> block(std::size_t{1} << 16);
  auto end = static_cast<std::uintmax_t>(in.tellg());
  while (end > 0) {
    const auto bytes = std::min<std::uintmax_t>(end, block.size());
    in.seekg(static_cast<std::streamoff>(end - bytes));
    if (!in.read(block.data(), static_cast<std::streamsize>(bytes))) return;
    const std::string_view text(block.data(), bytes);
    const auto newline = text.rfind('\n');
    end -= newline == std::string_view::npos ? bytes : bytes - newline - 1;
    if (newline != std::string_view::npos) break;
  }
  std::error_code error;
  if (end != fs::file_size(path, error)) fs::resize_file(path, end, error);
}

std::FILE* open_part(const std::string& path, TraceBegin begin) {
  if (begin == TraceBegin::anew) return std::fopen(path.c_str(), "wb");
  cut_to_whole_lines(path);
  return std::fopen(path.c_str(), "ab");
}

/// One event after another, with a comma between two.
class EventList {
 public:
  explicit EventList(std::ostream& out) : out_(out) {}
  void add(std::string_view event) {
    out_ << before_ << event;
    before_ = ",\n";
  }

 private:
  std::ostream& out_;
  const char* before_ = "";
};

constexpr std::string_view kFirstLine = R"({"displayTimeUnit":"ms","traceEvents":[)";
constexpr std::string_view kLastLine = "]}";

/// The events of a trace.json that merge_traces() wrote; none of another file.
void add_events_of(const std::string& trace, EventList& events) {
  std::ifstream in(trace, std::ios::binary);
  std::string line;
  if (!std::getline(in, line) || line != kFirstLine) return;
  while (std::getline(in, line) && line != kLastLine) {
    if (line.ends_with(',')) line.pop_back();
    if (!line.empty()) events.add(line);
  }
}

}  // namespace

TraceWriter::TraceWriter(const std::string& path, int rank, std::int64_t start_ns, TraceBegin begin,
                         TraceWindow window)
    : path_(path), rank_(rank), start_ns_(start_ns), window_(window), file_(open_part(path, begin)) {
  if (file_ == nullptr) {
    throw usage_error(fmt::format("the trace cannot be created ({})", std::strerror(errno)), path,
                      "name a folder that can be written with --output, or leave --trace out");
  }
  spans_.reserve(kBufferedSpans);
  const std::string names = names_of_rank(rank);
  failed_ = std::fwrite(names.data(), 1, names.size(), file_.get()) != names.size();
}

TraceWriter::~TraceWriter() {
  try {
    close();
  } catch (const std::exception&) {  // callers that want to know call close()
  }
}

void TraceWriter::span(Phase phase, std::string_view name, std::int64_t start_ns, std::int64_t end_ns) {
  add({name, start_ns, end_ns, phase, thread_of(phase)});
}

void TraceWriter::device_span(Phase phase, std::string_view name, std::int64_t start_ns,
                              std::int64_t end_ns) {
  add({name, start_ns, end_ns, phase, kDeviceThread});
}

void TraceWriter::add(Span span) {
  span.step = step_.load(std::memory_order_relaxed);
  if (!window_.has(span.step)) return;
  const std::lock_guard guard(mutex_);
  if (file_ == nullptr) return;
  spans_.push_back(span);
  if (spans_.size() == kBufferedSpans) write_spans();
}

void TraceWriter::write_spans() {
  fmt::memory_buffer text;
  for (const Span& span : spans_) {
    // Microseconds with three decimals; names are literals of ours without quotes.
    fmt::format_to(std::back_inserter(text),
                   R"({{"name":"{}","cat":"{}","ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f})",
                   span.name, phase_name(span.phase), rank_, span.thread,
                   static_cast<double>(span.start_ns - start_ns_) * 1e-3,
                   static_cast<double>(span.end_ns - span.start_ns) * 1e-3);
    if (span.step > 0) fmt::format_to(std::back_inserter(text), R"(,"args":{{"step":{}}})", span.step);
    fmt::format_to(std::back_inserter(text), "}}\n");
  }
  spans_.clear();
  failed_ = std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || failed_;
}

void TraceWriter::close() {
  const std::lock_guard guard(mutex_);
  if (file_ == nullptr) return;
  write_spans();
  failed_ = std::fclose(file_.release()) != 0 || failed_;
  require(!failed_, "the trace could not be written whole", {.subject = path_, .advice = "free disk space"});
}

void merge_traces(const std::string& folder) {
  const std::vector<fs::path> parts = parts_in(fs::path(folder) / "ranks");
  const std::string aside = trace_path(folder) + ".partial";
  {
    std::ofstream out(aside, std::ios::binary);
    out << kFirstLine << '\n';
    EventList events(out);
    add_events_of(trace_path(folder), events);
    for (const fs::path& part : parts) {
      std::ifstream in(part, std::ios::binary);
      for (std::string line; std::getline(in, line);) {
        if (in.eof()) break;  // no newline behind it: the rank was killed while writing
        events.add(line);
      }
    }
    out << '\n' << kLastLine << '\n';
    out.close();
    require(!out.fail(), "cannot be written", {.subject = trace_path(folder), .advice = "free disk space"});
  }
  std::error_code error;
  fs::rename(aside, trace_path(folder), error);
  require(!error, "cannot be replaced (" + error.message() + ")", {.subject = trace_path(folder)});
  for (const fs::path& part : parts) fs::remove(part, error);
}

}  // namespace dtrain::record
