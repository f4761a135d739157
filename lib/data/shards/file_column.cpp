#include "data/shards/file_column.hpp"

#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "core/regular_file.hpp"
#include "data/shards/fletcher32.hpp"
#include "data/shards/rows_in_memory.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kTrailerBytes = 4;
constexpr const char* kRestore = "restore the file or stage the dataset again";

}  // namespace

ReadOnlyFile::ReadOnlyFile(const std::filesystem::path& path)
    : file_(open_regular_file(path, ExitCode::data)), name_(path.string()) {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0)
    throw data_error(std::string("cannot be examined: ") + std::strerror(errno), name_, "check the disk");
  bytes_ = static_cast<std::uint64_t>(status.st_size);
}

void ReadOnlyFile::read(std::uint64_t offset, std::size_t count, void* out) const {
  read(offset, count, out, 0, nullptr);
}

void ReadOnlyFile::read(std::uint64_t offset, std::size_t count, void* out, std::size_t more,
                        void* more_out) const {
  std::array<iovec, 2> parts = {iovec{out, count}, iovec{more_out, more}};
  while (parts[0].iov_len + parts[1].iov_len > 0) {
    const ssize_t got =
        parts[1].iov_len == 0
            ? ::pread(file_.get(), parts[0].iov_base, parts[0].iov_len, static_cast<off_t>(offset))
            : ::preadv(file_.get(), parts.data(), 2, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw data_error(std::string("cannot be read: ") + std::strerror(errno), name_, "check the disk");
    if (got == 0) throw data_error("ends too early", name_, kRestore);
    auto left = static_cast<std::size_t>(got);
    offset += left;
    for (iovec& part : parts) {
      const std::size_t taken = std::min(left, part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + taken;
      part.iov_len -= taken;
      left -= taken;
    }
  }
}

FileColumn::FileColumn(std::shared_ptr<const ReadOnlyFile> file, std::string array, ElementType type,
                       std::vector<std::int64_t> row_shape, std::int64_t rows, StoredLayout layout, Keep keep)
    : Column(type, std::move(row_shape), rows),
      file_(std::move(file)),
      array_(std::move(array)),
      layout_(std::move(layout)),
      chunk_bytes_(static_cast<std::size_t>(layout_.rows_per_chunk) * row_bytes()),
      ready_(layout_.chunks.size()),
      unread_chunks_(layout_.chunks.size()) {
  for (std::size_t chunk = 0; chunk < layout_.chunks.size(); ++chunk) {
    const StoredChunk& stored = layout_.chunks[chunk];
    const std::size_t bytes =
        stored.checked ? chunk_bytes_ + kTrailerBytes
                       : static_cast<std::size_t>(rows_in(static_cast<std::int64_t>(chunk))) * row_bytes();
    require(stored.file_offset + bytes <= file_->bytes(), "ends before its dataset " + array_ + " does",
            {.subject = file_->name(), .advice = kRestore, .code = ExitCode::data});
    ready_[chunk].store(!stored.checked && keep == Keep::nothing, std::memory_order_relaxed);
  }
  if (keep == Keep::memory) {
    memory_.reset(ElementType::uint8, {rows * static_cast<std::int64_t>(row_bytes())});
    kept_ = static_cast<std::byte*>(memory_.data());
  }
}

std::int64_t FileColumn::rows_in(std::int64_t chunk) const {
  return std::min(layout_.rows_per_chunk, rows() - chunk * layout_.rows_per_chunk);
}

void FileColumn::read(std::int64_t first, std::int64_t count, std::byte* out) const {
  while (count > 0) {
    const std::int64_t chunk = first / layout_.rows_per_chunk;
    const std::int64_t inside = first - chunk * layout_.rows_per_chunk;
    const std::int64_t taken = std::min(count, layout_.rows_per_chunk - inside);
    read_chunk_part(chunk, inside, taken, out);
    first += taken;
    count -= taken;
    out += static_cast<std::size_t>(taken) * row_bytes();
  }
}

void FileColumn::load() const {
  if (kept_ == nullptr) return;
  std::vector<std::byte> row(row_bytes());
  for (std::int64_t first = 0; first < rows(); first += layout_.rows_per_chunk) read(first, 1, row.data());
}

void FileColumn::gather(std::span<const std::int64_t> rows, std::byte* out) const {
  const std::size_t bytes = row_bytes();
  if (kept_ != nullptr && unread_chunks_.load(std::memory_order_acquire) == 0) {
    copy_rows(rows, bytes, out,
              [&](std::int64_t row) { return kept_ + static_cast<std::size_t>(row) * bytes; });
    return;
  }
  for (const std::int64_t row : rows) {
    const std::int64_t chunk = row / layout_.rows_per_chunk;
    read_chunk_part(chunk, row - chunk * layout_.rows_per_chunk, 1, out);
    out += bytes;
  }
}

void FileColumn::read_chunk_part(std::int64_t chunk, std::int64_t first, std::int64_t count,
                                 std::byte* out) const {
  if (!ready_[chunk].load(std::memory_order_acquire)) return admit(chunk, first, count, out);
  const std::size_t skipped = static_cast<std::size_t>(first) * row_bytes();
  const std::size_t bytes = static_cast<std::size_t>(count) * row_bytes();
  if (kept_ != nullptr) {
    std::memcpy(out, kept_ + static_cast<std::size_t>(chunk) * chunk_bytes_ + skipped, bytes);
  } else {
    file_->read(layout_.chunks[chunk].file_offset + skipped, bytes, out);
  }
}

void FileColumn::admit(std::int64_t chunk, std::int64_t first, std::int64_t count, std::byte* out) const {
  const StoredChunk& stored = layout_.chunks[chunk];
  const bool full = rows_in(chunk) == layout_.rows_per_chunk;
  const std::size_t stored_bytes =
      stored.checked ? chunk_bytes_ : static_cast<std::size_t>(rows_in(chunk)) * row_bytes();
  const std::size_t trailer_bytes = stored.checked ? kTrailerBytes : 0;
  std::array<unsigned char, kTrailerBytes> trailer{};
  if (kept_ == nullptr && full && count == layout_.rows_per_chunk) {  // straight to where it is wanted
    file_->read(stored.file_offset, stored_bytes, out, trailer_bytes, trailer.data());
    verify(chunk, {out, stored_bytes}, trailer.data());
    ready_[chunk].store(true, std::memory_order_release);
    return;
  }
  const std::lock_guard lock(admission_);
  if (ready_[chunk].load(std::memory_order_acquire)) return read_chunk_part(chunk, first, count, out);
  HostArray aside;  // for a last chunk, stored whole but longer than its rows, and where nothing is kept
  std::byte* place = kept_ == nullptr ? nullptr : kept_ + static_cast<std::size_t>(chunk) * chunk_bytes_;
  std::byte* whole = place;
  if (place == nullptr || (!full && stored.checked)) {
    aside.reset(ElementType::uint8, {static_cast<std::int64_t>(stored_bytes)});
    whole = static_cast<std::byte*>(aside.data());
  }
  file_->read(stored.file_offset, stored_bytes, whole, trailer_bytes, trailer.data());
  verify(chunk, {whole, stored_bytes}, trailer.data());
  if (place != nullptr && place != whole)
    std::memcpy(place, whole, static_cast<std::size_t>(rows_in(chunk)) * row_bytes());
  std::memcpy(out, whole + static_cast<std::size_t>(first) * row_bytes(),
              static_cast<std::size_t>(count) * row_bytes());
  ready_[chunk].store(true, std::memory_order_release);
  unread_chunks_.fetch_sub(1, std::memory_order_release);
}

void FileColumn::verify(std::int64_t chunk, std::span<const std::byte> bytes,
                        const unsigned char* trailer) const {
  if (!layout_.chunks[chunk].checked) return;
  const std::uint32_t stored = trailer[0] | static_cast<std::uint32_t>(trailer[1]) << 8 |
                               static_cast<std::uint32_t>(trailer[2]) << 16 |
                               static_cast<std::uint32_t>(trailer[3]) << 24;
  require(fletcher32(bytes) == stored,
          "is damaged: chunk " + std::to_string(chunk) + " of dataset " + array_ + " (rows " +
              std::to_string(chunk * layout_.rows_per_chunk) + " to " +
              std::to_string(chunk * layout_.rows_per_chunk + rows_in(chunk) - 1) +
              ") fails its Fletcher-32 check",
          {.subject = file_->name(), .advice = kRestore, .code = ExitCode::data});
}

}  // namespace dtrain::data
