#include "data/formats/idx.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <system_error>

#include "core/checked_bytes.hpp"
#include "core/error.hpp"
#include "core/sha256.hpp"
#include "data/formats/unpacked_bytes.hpp"

namespace dtrain::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostIdxBytes = std::int64_t{1} << 40;
constexpr double kMostLabel = 1e9;

/// Reads a file through zlib, which passes plain files through.
class GzipReader {
 public:
  explicit GzipReader(const fs::path& file) : file_(::gzopen(file.c_str(), "rb")), name_(file.string()) {
    if (file_ == nullptr) throw data_error("cannot be opened", name_, "check its path and rights");
    ::gzbuffer(file_, 1U << 20);
  }
  ~GzipReader() { ::gzclose(file_); }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// Up to `count` bytes; fewer only at the end. Throws data_error for a damaged or cut-off gzip file.
  std::size_t read(void* out, std::size_t count) {
    std::size_t done = 0;
    while (done < count) {
      const auto piece = static_cast<unsigned>(std::min(count - done, std::size_t{1} << 24));
      const int got = ::gzread(file_, static_cast<char*>(out) + done, piece);
      int code = Z_OK;
      ::gzerror(file_, &code);
      if (got < 0 || code == Z_BUF_ERROR || code == Z_DATA_ERROR)
        throw data_error("is a truncated or damaged gzip file", name_, "fetch it again");
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

 private:
  gzFile file_;
  std::string name_;
};

struct IdxHeader {
  unsigned char type = 0;
  std::vector<std::int64_t> shape;
};

std::size_t bytes_of_type(unsigned char type) {
  switch (type) {
    case 0x08:
    case 0x09:
      return 1;
    case 0x0B:
      return 2;
    case 0x0C:
    case 0x0D:
      return 4;
    case 0x0E:
      return 8;
    default:
      return 0;
  }
}

bool looks_like_idx(const std::array<unsigned char, 4>& magic, std::size_t got) {
  return got == 4 && magic[0] == 0 && magic[1] == 0 && bytes_of_type(magic[2]) > 0 && magic[3] >= 1;
}

IdxHeader read_header(GzipReader& reader, const std::string& name) {
  std::array<unsigned char, 4> magic{};
  const std::size_t got = reader.read(magic.data(), 4);
  if (!looks_like_idx(magic, got))
    throw data_error("is not an IDX file", name, "give the original file, plain or gzipped");
  IdxHeader header{.type = magic[2]};
  for (int dim = 0; dim < magic[3]; ++dim) {
    std::array<unsigned char, 4> extent{};
    if (reader.read(extent.data(), 4) != 4)
      throw data_error("is truncated in its header", name, "fetch it again");
    header.shape.push_back(std::int64_t{extent[0]} << 24 | extent[1] << 16 | extent[2] << 8 | extent[3]);
  }
  return header;
}

/// Grows with what is there, so that a wrong header cannot ask for more memory than the file has bytes.
std::vector<unsigned char> read_values(GzipReader& reader, std::size_t wanted, const std::string& name) {
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  std::vector<unsigned char> values;
  while (values.size() < wanted) {
    const std::size_t before = values.size();
    values.resize(before + std::min(kPiece, wanted - before));
    const std::size_t got = reader.read(values.data() + before, values.size() - before);
    if (before + got < values.size())
      throw data_error("is truncated: its header promises " + std::to_string(wanted) +
                           " bytes of values, it has " + std::to_string(before + got),
                       name, "fetch it again");
  }
  unsigned char beyond = 0;
  if (reader.read(&beyond, 1) != 0)
    throw data_error("is longer than its header says", name, "fetch it again");
  return values;
}

/// Element `index` of big-endian values.
double value_at(const std::vector<unsigned char>& values, unsigned char type, std::size_t index) {
  const std::size_t bytes = bytes_of_type(type);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes; ++i) word = word << 8 | values[index * bytes + i];
  switch (type) {
    case 0x09:
      return static_cast<std::int8_t>(word);
    case 0x0B:
      return static_cast<std::int16_t>(word);
    case 0x0C:
      return static_cast<std::int32_t>(word);
    case 0x0D:
      return std::bit_cast<float>(static_cast<std::uint32_t>(word));
    case 0x0E:
      return std::bit_cast<double>(word);
    default:
      return static_cast<double>(word);
  }
}

struct IdxPair {
  fs::path images;
  fs::path labels;
};

/// Sorts the folder's IDX files into splits; throws when one is without its partner.
std::map<std::string, IdxPair> find_pairs(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::map<std::string, IdxPair> pairs;
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    if (!is_idx(file)) {
      if (name.find("idx") != std::string::npos || name.find("ubyte") != std::string::npos)
        throw data_error("is not an IDX file", file.string(), "give the original file, plain or gzipped");
      continue;
    }
    const bool test = name.find("t10k") != std::string::npos || name.find("test") != std::string::npos;
    GzipReader reader(file);
    const bool labels = read_header(reader, file.string()).shape.size() == 1;
    IdxPair& pair = pairs[test ? "test" : "train"];
    fs::path& place = labels ? pair.labels : pair.images;
    if (!place.empty())
      throw data_error("is a second file of the same kind beside " + place.filename().string(), file.string(),
                       "leave one pair per split in the folder");
    place = file;
  }
  if (!pairs.contains("train"))
    throw data_error(
        "holds no IDX files of a training split", folder.string(),
        "give a folder with images and labels, or --inputs and --targets of HDF5 or .npy arrays");
  for (const auto& [split, pair] : pairs) {
    if (pair.images.empty() || pair.labels.empty())
      throw data_error("has no " + std::string(pair.images.empty() ? "images" : "labels") + " beside " +
                           (pair.images.empty() ? pair.labels : pair.images).filename().string(),
                       folder.string(), "put the missing IDX file there");
  }
  return pairs;
}

}  // namespace

bool is_idx(const fs::path& file) {
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return false;
  GzipReader reader(file);
  std::array<unsigned char, 4> magic{};
  return looks_like_idx(magic, reader.read(magic.data(), 4));
}

std::shared_ptr<const Column> read_idx(const fs::path& file) {
  const std::string name = file.string();
  std::error_code ignored;
  if (!fs::exists(file, ignored)) throw data_error("there is no such file", name, "check the path");
  GzipReader reader(file);
  const IdxHeader header = read_header(reader, name);
  const auto bytes =
      checked_bytes(header.shape, static_cast<std::int64_t>(bytes_of_type(header.type)), kMostIdxBytes);
  if (!bytes)
    throw data_error("is truncated: its header promises more values than a file can have", name,
                     "fetch it again");
  if (*bytes == 0) throw data_error("holds no values", name, "give the original file, plain or gzipped");
  const std::uint64_t packed = fs::file_size(file, ignored);
  if (static_cast<std::uint64_t>(*bytes) > most_unpacked(packed))
    throw data_error(fmt::format("would unpack to {} MiB from {} MiB", *bytes >> 20, packed >> 20), name,
                     "unpack it yourself where that is right, and give the plain file");
  const auto values = read_values(reader, static_cast<std::size_t>(*bytes), name);
  const auto count = values.size() / bytes_of_type(header.type);
  HostArray array;
  if (header.shape.size() == 1) {
    array.reset(ElementType::int64, header.shape);
    for (std::size_t i = 0; i < count; ++i) {
      const double label = value_at(values, header.type, i);
      if (!(std::abs(label) < kMostLabel) || label != std::floor(label))
        throw data_error(fmt::format("has {} as label {}, which is no class", label, i), name,
                         "give labels that are whole numbers");
      array.as<std::int64_t>()[i] = static_cast<std::int64_t>(label);
    }
  } else if (header.type == 0x08) {
    array.reset(ElementType::uint8, header.shape);
    if (count > 0) std::memcpy(array.data(), values.data(), count);
  } else {
    array.reset(ElementType::float32, header.shape);
    for (std::size_t i = 0; i < count; ++i)
      array.as<float>()[i] = static_cast<float>(value_at(values, header.type, i));
  }
  return MemoryColumn::of(std::move(array));
}

bool is_idx_source(const fs::path& from) {
  if (!fs::is_directory(from)) {
    if (is_idx(from))
      throw data_error("is one IDX file, but images and labels are needed", from.string(),
                       "give the folder that holds both");
    return false;
  }
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    const bool named = name.find("idx") != std::string::npos || name.find("ubyte") != std::string::npos;
    if (entry.is_regular_file() && (named || is_idx(entry.path()))) return true;
  }
  return false;
}

Originals read_idx_folder(const fs::path& folder) {
  if (!fs::is_directory(folder))
    throw data_error("is not a folder", "--from " + folder.string(),
                     "give the folder that holds the IDX files of images and labels");
  Originals found;
  for (const auto& [split, pair] : find_pairs(folder)) {
    const auto images = read_idx(pair.images);
    const auto labels = read_idx(pair.labels);
    require_same_count(*images, *labels, pair.images.string(), pair.labels.filename().string());
    Originals part = from_arrays(images, labels, pair.images.string(), pair.labels.string());
    found.splits[split] = part.splits.at("train");
    if (part.classes.size() > found.classes.size()) found.classes = part.classes;
    if (!found.shape.empty() && found.shape != part.shape)
      throw data_error("has images of another shape than the other split", pair.images.string(),
                       "give files that belong together");
    found.shape = part.shape;
    found.task = part.task;
    for (const fs::path& file : {pair.images, pair.labels})
      found.sources.push_back({file.filename().string(), sha256_of_file(file, ExitCode::data)});
  }
  return found;
}

}  // namespace dtrain::data
