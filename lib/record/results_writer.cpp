#include "record/results_writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "core/file_descriptor.hpp"
#include "core/own_place.hpp"
#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/rank_files.hpp"
#include "record/reserved_space.hpp"
#include "record/table_file.hpp"

namespace dtrain::record {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kRowsPerChunk = 64;
constexpr std::uint64_t kRoomForStatus = 16 << 10;  // its attributes, and links

template <class Row>
void write_table(hid_t file, const std::string& path, const std::vector<Row>& rows) {
  make_table<Row>(file, path, kRowsPerChunk).append(rows.data(), rows.size());
}

// These tables have the columns of their row type and then the model's own, so their rows are put together
// byte by byte.
template <class Row>
void write_extended(hid_t file, const std::string& path, const ExtendedRows<Row>& table,
                    const std::vector<ExtraColumn>& extra) {
  std::vector<Column> columns = columns_of<Row>();
  const std::size_t row_bytes = sizeof(Row) + extra.size() * sizeof(double);
  for (std::size_t i = 0; i < extra.size(); ++i) {
    columns.push_back(
        {.name = extra[i].name, .units = extra[i].units, .offset = sizeof(Row) + i * sizeof(double)});
  }
  std::vector<char> bytes(table.rows.size() * row_bytes);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    char* row = bytes.data() + i * row_bytes;
    std::memcpy(row, &table.rows[i], sizeof(Row));
    if (!extra.empty()) {
      std::memcpy(row + sizeof(Row), table.extra.data() + i * extra.size(), extra.size() * sizeof(double));
    }
  }
  TableFile(file, path, columns, row_bytes, kRowsPerChunk).append(bytes.data(), table.rows.size());
}

// `validation_f1` is `f1` in tables that say themselves of which split they are.
std::vector<ExtraColumn> of_any_split(std::vector<ExtraColumn> extra) {
  constexpr std::string_view kPrefix = "validation_";
  for (ExtraColumn& column : extra) {
    if (column.name.starts_with(kPrefix)) column.name.erase(0, kPrefix.size());
  }
  return extra;
}

void write_confusion(hid_t file, const ConfusionMatrix& confusion) {
  if (confusion.counts.empty()) return;
  std::uint64_t classes = 1;
  while (classes * classes < confusion.counts.size()) ++classes;
  h5::write_dataset(file, "test_confusion", {classes, classes},
                    std::span<const std::int64_t>(confusion.counts));
  if (!confusion.classes.empty()) h5::write_strings(file, "test_classes", confusion.classes);
}

void write_clients(hid_t file, const Clients& clients) {
  if (clients.rows.empty()) return;
  write_table(file, "clients", clients.rows);
  const std::uint64_t count = clients.rows.size();
  if (!clients.classes.empty()) {
    h5::write_dataset(file, "client_classes", {count, clients.classes.size() / count},
                      std::span<const std::int64_t>(clients.classes));
  }
  h5::write_dataset(file, "client_of_sample", {clients.owners.size()},
                    std::span<const std::int64_t>(clients.owners));
}

// The rows of an earlier part's table that `keeps` lets through. One that an older version left may lack the
// table, or a column.
template <class Row, class Keeps>
ExtendedRows<Row> rows_kept(hid_t file, const std::string& path, const std::vector<ExtraColumn>& extra,
                            const Keeps& keeps) {
  ExtendedRows<Row> kept;
  if (H5Lexists(file, path.c_str(), H5P_DEFAULT) <= 0) return kept;
  const auto rows = read_rows<Row>(file, path);
  const Table table = read_table(file, path);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!keeps(rows[i])) continue;
    kept.rows.push_back(rows[i]);
    for (const ExtraColumn& column : extra) {
      kept.extra.push_back(table.has(column.name) ? table.column(column.name)[i] : kNoValue);
    }
  }
  return kept;
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
  if (!info.emulated.empty()) h5::write_attribute(file, "emulated", info.emulated);
  if (!info.tf32.empty()) h5::write_attribute(file, "tf32", info.tf32);
}

void write_status(hid_t file, Status status, const std::string& end_time_utc) {
  h5::write_attribute(file, "status", status_name(status));
  h5::write_attribute(file, "end_time_utc", end_time_utc);
}

// The file that a reader does not see yet. Gone, unless it was renamed.
//
// HDF5, refused in the middle of a write, may end the process (1.10.8, in H5Ocopy). So it is made here and
// given room before HDF5 sees it.
class AsideFile {
 public:
  explicit AsideFile(std::string path) : path_(std::move(path)), aside_(path_ + ".partial") {
    claim_file(aside_, ExitCode::failure);
    const FileDescriptor file(
        ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
    require(file.is_open(), std::string("cannot be created (") + std::strerror(errno) + ")",
            {.subject = path_, .advice = "check the permissions of its folder"});
  }
  ~AsideFile() {
    std::error_code error;
    fs::remove(aside_, error);
  }
  AsideFile(const AsideFile&) = delete;
  AsideFile& operator=(const AsideFile&) = delete;

  const std::string& path() const { return aside_; }
  // Throws Error where the disk has no room for so many bytes.
  void check_room(std::uint64_t bytes) const {
    ReservedSpace space(aside_);
    space.reserve(0, bytes);
    space.trim(0);
  }
  bool has_room(std::uint64_t bytes) const {
    try {
      check_room(bytes);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  // Closes what HDF5 has written there, and gives back what it had room for besides.
  void close(h5::File& file) const {
    h5::flush(file);
    const auto bytes = h5::file_bytes(file);
    file.close();
    ReservedSpace(aside_).trim(bytes);
  }
  void publish() {
    std::error_code error;
    fs::rename(aside_, path_, error);
    require(!error, "cannot be replaced (" + error.message() + ")",
            {.subject = path_, .advice = "check the permissions of its folder"});
  }
  // The same for a file that is the last one of its run: what says that the run is complete must not reach
  // the disk before it.
  void publish_durably(const std::string& folder) {
    sync_to_disk(aside_);
    publish();
    sync_to_disk(folder);
  }

 private:
  std::string path_;
  std::string aside_;
};

// Where results.h5 links to them, it is worth as much as they are.
void sync_rank_files(const std::string& folder) {
  std::error_code ignored;
  for (const RankFile& file : rank_files(folder))
    if (fs::is_regular_file(fs::symlink_status(file.path, ignored))) sync_to_disk(file.path);
  sync_to_disk(folder + "/ranks");
}

}  // namespace

ResultsWriter::ResultsWriter(h5::Library& library, std::string folder, RunInfo info,
                             std::vector<ExtraColumn> extra, const std::optional<Kept>& kept)
    : library_(library), folder_(std::move(folder)), info_(std::move(info)), extra_(std::move(extra)) {
  create_run_folder(folder_);
  if (kept) {
    topology_ = topology_of(library_, results_path(folder_));
    take_over_or_set_aside(*kept);
  }
  write_state(folder_, Status::running);
  write(Status::running, "");
}

void ResultsWriter::take_over_or_set_aside(const Kept& kept) {
  try {
    take_over(kept);
  } catch (const Error& error) {
    // The machine may have died before the disk had the file. The checkpoints are whole: the run goes on.
    if (::access(results_path(folder_).c_str(), R_OK) != 0) throw;  // that can be mended
    std::error_code failed;
    const std::string damaged = free_name(results_path(folder_) + ".damaged").string();
    fs::rename(results_path(folder_), damaged, failed);
    if (failed) throw;
    epochs_ = {};
    validations_ = {};
    rounds_.clear();
    privacy_.clear();
    staleness_.clear();
    lost_ = fmt::format("{}: {}; it is {} now, and what it said of the epochs before is missing",
                        results_path(folder_), error.problem(), damaged);
  }
}

void ResultsWriter::take_over(const Kept& kept) {
  const auto lock = library_.lock();
  const h5::File file = h5::open_file(results_path(folder_), h5::Access::read);
  epochs_ = rows_kept<EpochRow>(file.id(), "epochs", extra_,
                                [&](const EpochRow& row) { return row.epoch <= kept.epoch; });
  validations_ = rows_kept<ValidationRow>(file.id(), "validations", of_any_split(extra_),
                                          [&](const ValidationRow& row) { return row.step <= kept.step; });
  if (H5Lexists(file.id(), "rounds", H5P_DEFAULT) > 0) {
    rounds_ = read_rows<RoundRow>(file.id(), "rounds");
    std::erase_if(rounds_, [&](const RoundRow& row) { return row.round > kept.epoch; });
  }
  if (H5Lexists(file.id(), "privacy", H5P_DEFAULT) > 0) {
    privacy_ = read_rows<PrivacyRow>(file.id(), "privacy");
    std::erase_if(privacy_, [&](const PrivacyRow& row) { return row.step > kept.step; });
  }
  if (H5Lexists(file.id(), "staleness", H5P_DEFAULT) <= 0) return;
  staleness_ = read_rows<StalenessRow>(file.id(), "staleness");
  std::erase_if(staleness_, [&](const StalenessRow& row) { return row.epoch > kept.epoch; });
}

template <class Row>
void ResultsWriter::append(ExtendedRows<Row>& table, const Row& row, std::span<const double> extra) const {
  require(extra.size() == extra_.size(), "a row has values for other columns than the model named",
          {.subject = results_path(folder_)});
  table.rows.push_back(row);
  table.extra.insert(table.extra.end(), extra.begin(), extra.end());
}

std::string start_time_of(h5::Library& library, const std::string& file) {
  try {
    const auto lock = library.lock();
    return h5::read_string_attribute(h5::open_file(file, h5::Access::read).id(), "start_time_utc");
  } catch (const Error&) {
    return {};
  }
}

std::vector<TopologyRow> topology_of(h5::Library& library, const std::string& file) {
  constexpr std::int64_t kMostGenerations = 1'000'000'000;
  try {
    const auto lock = library.lock();
    auto rows = read_rows<TopologyRow>(h5::open_file(file, h5::Access::read).id(), "topology");
    const auto is_possible = [](const TopologyRow& row) {
      return row.generation >= 0 && row.generation < kMostGenerations;
    };
    return std::ranges::all_of(rows, is_possible) ? rows : std::vector<TopologyRow>();
  } catch (const Error&) {
    return {};
  }
}

void ResultsWriter::topology(std::vector<TopologyRow> rows) {
  topology_ = std::move(rows);
  write_if_possible();
}

void ResultsWriter::epoch(const EpochRow& row, std::span<const double> extra) {
  append(epochs_, row, extra);
  write_if_possible();
}

void ResultsWriter::staleness(std::int64_t epoch, std::span<const std::int64_t> updates) {
  for (std::size_t late = 0; late < updates.size(); ++late) {
    if (updates[late] > 0) staleness_.push_back({epoch, static_cast<std::int64_t>(late), updates[late]});
  }
}

void ResultsWriter::clients(Clients clients) {
  clients_ = std::move(clients);
  write_if_possible();
}

void ResultsWriter::validation(const ValidationRow& row, std::span<const double> extra) {
  while (!validations_.rows.empty() && validations_.rows.back().step >= row.step) {
    validations_.rows.pop_back();
    validations_.extra.resize(validations_.extra.size() - extra_.size());
  }
  append(validations_, row, extra);
}

void ResultsWriter::test(const TestRow& row, std::span<const double> extra, ConfusionMatrix confusion) {
  append(test_, row, extra);
  confusion_ = std::move(confusion);
  write_if_possible();
}

void ResultsWriter::finish(Status status) {
  write(status, utc_now());
  write_state(folder_, status);
  try {
    sync_to_disk(state_path(folder_));
    sync_to_disk(folder_);
  } catch (const Error&) {  // the results are there, and a run whose state is an earlier one is resumed
  }
}

void ResultsWriter::write_if_possible() {
  try {
    write(Status::running, "");
    problem_.clear();
  } catch (const Error& error) {
    problem_ = error.what();
  }
}

// What HDF5 may need for all but copies of the ranks' files.
std::uint64_t ResultsWriter::own_bytes() const {
  constexpr std::uint64_t kBase = 64 << 10;
  constexpr std::uint64_t kLinkBytes = 256;
  constexpr std::uint64_t kNameBytes = 256;  // of a class
  const std::uint64_t extra_bytes = extra_.size() * sizeof(double);
  return kBase + 2 * (info_.config.size() + info_.command_line.size()) +
         (topology_.size() + kRowsPerChunk) * sizeof(TopologyRow) +
         (epochs_.rows.size() + kRowsPerChunk) * (sizeof(EpochRow) + extra_bytes) +
         (validations_.rows.size() + kRowsPerChunk) * (sizeof(ValidationRow) + extra_bytes) +
         (test_.rows.size() + kRowsPerChunk) * (sizeof(TestRow) + extra_bytes) +
         (staleness_.size() + kRowsPerChunk) * sizeof(StalenessRow) +
         (rounds_.size() + kRowsPerChunk) * sizeof(RoundRow) +
         (sites_.size() + kRowsPerChunk) * sizeof(SiteRow) +
         (client_tests_.size() + kRowsPerChunk) * sizeof(ClientTestRow) +
         (clients_.rows.size() + kRowsPerChunk) * sizeof(ClientRow) +
         (clients_.classes.size() + clients_.owners.size()) * sizeof(std::int64_t) +
         (privacy_.size() + kRowsPerChunk) * sizeof(PrivacyRow) +
         (client_privacy_.size() + kRowsPerChunk) * sizeof(ClientPrivacyRow) +
         confusion_.counts.size() * sizeof(std::int64_t) + confusion_.classes.size() * kNameBytes +
         static_cast<std::uint64_t>(info_.world_size) * kLinkBytes;
}

void ResultsWriter::write(Status status, const std::string& end_time_utc) {
  AsideFile aside(results_path(folder_));
  std::uint64_t bytes = own_bytes();
  const auto copies = status == Status::running ? std::nullopt : bytes_of_rank_copies(folder_);
  const bool copied = copies && aside.has_room(bytes + *copies);
  if (copied) bytes += *copies;
  aside.check_room(bytes);
  auto lock = library_.lock();
  h5::File file = h5::create_file(aside.path());
  ReservedSpace(aside.path()).reserve(0, bytes);
  write_attributes(file.id(), info_);
  write_status(file.id(), status, end_time_utc);
  write_table(file.id(), "topology", topology_);
  write_extended(file.id(), "epochs", epochs_, extra_);
  write_extended(file.id(), "validations", validations_, of_any_split(extra_));
  write_extended(file.id(), "test", test_, of_any_split(extra_));
  if (!staleness_.empty()) write_table(file.id(), "staleness", staleness_);
  if (!rounds_.empty()) write_table(file.id(), "rounds", rounds_);
  write_clients(file.id(), clients_);
  if (!sites_.empty()) write_table(file.id(), "test_sites", sites_);
  if (!client_tests_.empty()) write_table(file.id(), "test_clients", client_tests_);
  if (!privacy_.empty()) write_table(file.id(), "privacy", privacy_);
  if (!client_privacy_.empty()) write_table(file.id(), "client_privacy", client_privacy_);
  write_confusion(file.id(), confusion_);
  if (status == Status::running) {
    for (int rank = 0; rank < info_.world_size; ++rank) link_rank_file(file.id(), rank);
  } else {
    lock.unlock();
    gather_rank_files(library_, folder_, file.id(), copied ? RankGroups::copies : RankGroups::links);
    lock.lock();
  }
  aside.close(file);
  lock.unlock();
  if (status == Status::running) return aside.publish();
  if (!copied) sync_rank_files(folder_);
  aside.publish_durably(folder_);
}

void finish_interrupted(h5::Library& library, const std::string& folder, Status status) {
  AsideFile aside(results_path(folder));
  std::error_code error;
  const auto copies = bytes_of_rank_copies(folder);
  const std::uint64_t more = copies.value_or(0) + kRoomForStatus;
  aside.check_room(fs::file_size(results_path(folder), error) + more);
  fs::copy_file(results_path(folder), aside.path(), fs::copy_options::overwrite_existing, error);
  require(!error, "cannot be copied (" + error.message() + ")", {.subject = results_path(folder)});
  auto lock = library.lock();
  h5::File file = h5::open_file(aside.path(), h5::Access::write);
  ReservedSpace(aside.path()).reserve(h5::file_bytes(file), more);
  write_status(file.id(), status, "");
  lock.unlock();
  gather_rank_files(library, folder, file.id(), copies ? RankGroups::copies : RankGroups::links);
  lock.lock();
  aside.close(file);
  lock.unlock();
  if (!copies) sync_rank_files(folder);
  aside.publish_durably(folder);
}

}  // namespace dtrain::record
