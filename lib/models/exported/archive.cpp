#include "models/exported/archive.hpp"

#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "core/printable.hpp"
#include "core/regular_file.hpp"
#include "models/exported/record_sizes.hpp"

namespace dtrain::models::exported {
namespace {

constexpr const char* kAnotherFile = "name a file that torch.export.save wrote, or take another copy of it";

/// LibTorch's words, without its own source lines.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return printable(std::string_view(text).substr(0, text.find_first_of("\n[")), 200);
}

}  // namespace

Archive::Archive(std::string file) : file_(std::move(file)) {
  std::error_code problem;
  if (!std::filesystem::exists(file_, problem)) {
    throw usage_error("there is no such file", "--model " + file_,
                      "name a file that torch.export.save wrote");
  }
  require_regular_file(file_, ExitCode::usage);
  bytes_ = static_cast<std::int64_t>(std::filesystem::file_size(file_, problem));
  // The reader refuses an empty file by an assertion of its own.
  if (problem || bytes_ < 22) throw damaged("is too short to be an archive");
  std::ifstream readable(file_, std::ios::binary);
  if (!readable) throw usage_error("cannot be read", "--model " + file_, "see to its permissions");
  // LibTorch's reader unpacks two records before it can be asked for sizes.
  if (const auto largest = largest_record(readable, bytes_);
      largest && largest->bytes > static_cast<std::uint64_t>(bytes_)) {
    throw larger_than_file(largest->name);
  }
  try {
    reader_ = std::make_unique<caffe2::serialize::PyTorchStreamReader>(file_);
    reader_->setShouldLoadDebugSymbol(true);
  } catch (const std::exception& error) {
    throw damaged(fmt::format("is not a whole archive ({})", first_line(error)));
  }
}

Archive::~Archive() = default;

Error Archive::damaged(const std::string& problem) const {
  return checkpoint_error(problem, file_, kAnotherFile);
}

Error Archive::larger_than_file(const std::string& record) const {
  return damaged(fmt::format("says that its record {} is larger than the file", printable(record, 100)));
}

bool Archive::has(const std::string& record) const { return reader_->hasRecord(record); }

std::vector<std::string> Archive::records() const {
  try {
    return reader_->getAllRecords();
  } catch (const std::exception& error) {
    throw damaged(fmt::format("has a list of records that is damaged ({})", first_line(error)));
  }
}

std::int64_t Archive::size_of(const std::string& record) const {
  try {
    if (!has(record)) throw damaged(fmt::format("has no record {}", printable(record, 100)));
    return static_cast<std::int64_t>(reader_->getRecordSize(record));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw damaged(fmt::format("has a damaged record {} ({})", printable(record, 100), first_line(error)));
  }
}

Record Archive::read(const std::string& record, std::int64_t most) const {
  const auto bytes = size_of(record);
  if (bytes < 0 || bytes > bytes_) throw larger_than_file(record);
  if (bytes > most) {
    throw damaged(fmt::format("has a record {} of {} bytes, more than the {} that dtrain takes",
                              printable(record, 100), bytes, most));
  }
  try {
    auto [memory, size] = reader_->getRecord(record);
    auto kept = std::make_shared<at::DataPtr>(std::move(memory));
    return {std::shared_ptr<void>(kept, kept->get()), size};
  } catch (const std::exception& error) {
    throw damaged(fmt::format("has a damaged record {} ({})", printable(record, 100), first_line(error)));
  }
}

struct ArchiveWriter::Parts {
  std::string file;
  std::ofstream stream;
  std::unique_ptr<caffe2::serialize::PyTorchStreamWriter> writer;
};

ArchiveWriter::ArchiveWriter(const std::string& file) : parts_(std::make_unique<Parts>()) {
  parts_->file = file;
  parts_->stream.open(file, std::ios::binary | std::ios::trunc);
  parts_->writer = std::make_unique<caffe2::serialize::PyTorchStreamWriter>(
      [stream = &parts_->stream](const void* data, std::size_t bytes) {
        stream->write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
        return bytes;  // what failed is found by finish()
      });
}

ArchiveWriter::~ArchiveWriter() {
  try {
    if (!parts_->writer->finalized()) parts_->writer->writeEndOfFile();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): an error is on its way already
  }
}

void ArchiveWriter::add(const std::string& record, std::string_view bytes) {
  parts_->writer->writeRecord(record, bytes.data(), bytes.size());
}

void ArchiveWriter::finish() {
  parts_->writer->writeEndOfFile();
  parts_->stream.close();
  if (!parts_->stream.good())
    throw checkpoint_error("cannot be written", parts_->file, "make room on that file system");
}

}  // namespace dtrain::models::exported
