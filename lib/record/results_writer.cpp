#include "record/results_writer.hpp"

#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "h5/attribute.hpp"
#include "h5/file.hpp"
#include "record/rank_files.hpp"
#include "record/table_file.hpp"

namespace dtrain::record {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kRowsPerChunk = 64;

template <class Row>
void write_table(hid_t file, const std::string& path, const std::vector<Row>& rows) {
  make_table<Row>(file, path, kRowsPerChunk).append(rows.data(), rows.size());
}

// /epochs has the columns of EpochRow and then the model's own, so its rows are put together byte by byte.
void write_epochs(hid_t file, const std::vector<EpochRow>& rows, const std::vector<ExtraColumn>& extra,
                  const std::vector<double>& extra_values) {
  std::vector<Column> columns = columns_of<EpochRow>();
  const std::size_t row_bytes = sizeof(EpochRow) + extra.size() * sizeof(double);
  for (std::size_t i = 0; i < extra.size(); ++i) {
    columns.push_back(
        {.name = extra[i].name, .units = extra[i].units, .offset = sizeof(EpochRow) + i * sizeof(double)});
  }
  std::vector<char> bytes(rows.size() * row_bytes);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    char* row = bytes.data() + i * row_bytes;
    std::memcpy(row, &rows[i], sizeof(EpochRow));
    if (!extra.empty()) {
      std::memcpy(row + sizeof(EpochRow), extra_values.data() + i * extra.size(),
                  extra.size() * sizeof(double));
    }
  }
  TableFile(file, "epochs", columns, row_bytes, kRowsPerChunk).append(bytes.data(), rows.size());
}

void write_attributes(hid_t file, const RunInfo& info) {
  h5::write_attribute(file, "format", "dtrain.results");
  h5::write_attribute(file, "version", kResultsVersion);
  h5::write_attribute(file, "name", info.name);
  h5::write_attribute(file, "model", info.model);
  h5::write_attribute(file, "dataset", info.dataset);
  h5::write_attribute(file, "strategy", info.strategy);
  h5::write_attribute(file, "mesh", info.mesh);
  h5::write_attribute(file, "world_size", info.world_size);
  h5::write_attribute(file, "start_time_utc", info.start_time_utc);
  h5::write_attribute(file, "dtrain_version", info.dtrain_version);
  h5::write_attribute(file, "command_line", info.command_line);
  h5::write_attribute(file, "config", info.config);
}

void write_status(hid_t file, Status status, const std::string& end_time_utc) {
  h5::write_attribute(file, "status", status_name(status));
  h5::write_attribute(file, "end_time_utc", end_time_utc);
}

// The file that a reader does not see yet. Gone, unless it was renamed.
class AsideFile {
 public:
  explicit AsideFile(std::string path) : path_(std::move(path)), aside_(path_ + ".partial") {}
  ~AsideFile() {
    std::error_code error;
    fs::remove(aside_, error);
  }
  AsideFile(const AsideFile&) = delete;
  AsideFile& operator=(const AsideFile&) = delete;

  const std::string& path() const { return aside_; }
  void publish() {
    std::error_code error;
    fs::rename(aside_, path_, error);
    require(!error, "cannot be replaced (" + error.message() + ")",
            {.subject = path_, .advice = "check the permissions of its folder"});
  }

 private:
  std::string path_;
  std::string aside_;
};

}  // namespace

ResultsWriter::ResultsWriter(h5::Library& library, std::string folder, RunInfo info,
                             std::vector<ExtraColumn> extra, std::optional<std::int64_t> kept_epochs)
    : library_(library), folder_(std::move(folder)), info_(std::move(info)), extra_(std::move(extra)) {
  create_run_folder(folder_);
  if (kept_epochs) take_over(*kept_epochs);
  write_state(folder_, Status::running);
  write(Status::running, "");
}

void ResultsWriter::take_over(std::int64_t epochs) {
  const auto lock = library_.lock();
  const h5::File file = h5::open_file(results_path(folder_), h5::Access::read);
  const auto rows = read_rows<EpochRow>(file.id(), "epochs");
  const Table table = read_table(file.id(), "epochs");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].epoch > epochs) continue;
    epochs_.push_back(rows[i]);
    for (const ExtraColumn& column : extra_) epoch_extras_.push_back(table.column(column.name)[i]);
  }
}

std::string start_time_of(h5::Library& library, const std::string& file) {
  try {
    const auto lock = library.lock();
    return h5::read_string_attribute(h5::open_file(file, h5::Access::read).id(), "start_time_utc");
  } catch (const Error&) {
    return {};
  }
}

void ResultsWriter::topology(std::vector<TopologyRow> rows) { topology_ = std::move(rows); }

void ResultsWriter::epoch(const EpochRow& row, std::span<const double> extra) {
  require(extra.size() == extra_.size(), "an epoch has values for other columns than the model named",
          {.subject = results_path(folder_)});
  epochs_.push_back(row);
  epoch_extras_.insert(epoch_extras_.end(), extra.begin(), extra.end());
  write_if_possible();
}

void ResultsWriter::test(const TestRow& row) {
  test_.push_back(row);
  write_if_possible();
}

void ResultsWriter::finish(Status status) {
  write(status, utc_now());
  write_state(folder_, status);
}

void ResultsWriter::write_if_possible() {
  try {
    write(Status::running, "");
    problem_.clear();
  } catch (const Error& error) {
    problem_ = error.what();
  }
}

void ResultsWriter::write(Status status, const std::string& end_time_utc) {
  AsideFile aside(results_path(folder_));
  auto lock = library_.lock();
  h5::File file = h5::create_file(aside.path());
  write_attributes(file.id(), info_);
  write_status(file.id(), status, end_time_utc);
  write_table(file.id(), "topology", topology_);
  write_epochs(file.id(), epochs_, extra_, epoch_extras_);
  write_table(file.id(), "test", test_);
  if (status == Status::running) {
    for (int rank = 0; rank < info_.world_size; ++rank) link_rank_file(file.id(), rank);
  } else {
    lock.unlock();
    gather_rank_files(library_, folder_, file.id());
    lock.lock();
  }
  file.close();
  aside.publish();
}

void finish_interrupted(h5::Library& library, const std::string& folder, Status status) {
  AsideFile aside(results_path(folder));
  std::error_code error;
  fs::copy_file(results_path(folder), aside.path(), fs::copy_options::overwrite_existing, error);
  require(!error, "cannot be copied (" + error.message() + ")", {.subject = results_path(folder)});
  auto lock = library.lock();
  h5::File file = h5::open_file(aside.path(), h5::Access::write);
  write_status(file.id(), status, "");
  lock.unlock();
  gather_rank_files(library, folder, file.id());
  lock.lock();
  file.close();
  aside.publish();
}

}  // namespace dtrain::record
