#include "h5/chunk_check.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "h5/check.hpp"

namespace dtrain::h5 {
namespace {

constexpr std::uint64_t kFletcherBytes = 4;
constexpr const char* kRepack = "pack it anew with h5repack -f GZIP=4 OLD NEW";

/// Counts what deflated bytes unpack to, without keeping it.
class Inflater {
 public:
  Inflater() { require(inflateInit(&stream_) == Z_OK, "zlib does not start", {}); }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// The unpacked bytes, or, once that is known, any number above `most`; nothing where they are not a whole
  /// stream.
  std::optional<std::uint64_t> count(std::span<const std::byte> packed, std::uint64_t most) {
    if (inflateReset(&stream_) != Z_OK || packed.size() > std::numeric_limits<uInt>::max())
      return std::nullopt;
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
    stream_.avail_in = static_cast<uInt>(packed.size());
    std::uint64_t unpacked = 0;
    int result = Z_OK;
    while (result == Z_OK && unpacked <= most) {
      stream_.next_out = sink_.data();
      stream_.avail_out = static_cast<uInt>(sink_.size());
      result = inflate(&stream_, Z_NO_FLUSH);
      unpacked += sink_.size() - stream_.avail_out;
    }
    if (result != Z_STREAM_END && unpacked <= most) return std::nullopt;
    return unpacked;
  }

 private:
  z_stream stream_{};
  std::array<Bytef, std::size_t{64} << 10> sink_{};
};

/// The filters through which a dataset's chunks were written, first to last.
std::vector<H5Z_filter_t> filters_of(const PropertyList& list) {
  std::vector<H5Z_filter_t> filters;
  for (int i = 0; i < H5Pget_nfilters(list.id()); ++i) {
    std::size_t parameters = 0;
    unsigned flags = 0;
    filters.push_back(H5Pget_filter2(list.id(), static_cast<unsigned>(i), &flags, &parameters, nullptr, 0,
                                     nullptr, nullptr));
  }
  return filters;
}

/// How many bytes a stored chunk unpacks to; nothing where its filters cannot be undone.
std::optional<std::uint64_t> unpacked_bytes(const std::vector<H5Z_filter_t>& filters, std::uint32_t left_out,
                                            std::span<const std::byte> stored, std::uint64_t chunk_bytes,
                                            Inflater& inflater) {
  std::uint64_t bytes = stored.size();
  bool as_stored = true;  // the first `bytes` of `stored` are what the next filter sees
  for (std::size_t i = filters.size(); i-- > 0;) {
    if (i < 32 && (left_out >> i & 1U) != 0) continue;
    if (filters[i] == H5Z_FILTER_FLETCHER32) {
      if (bytes < kFletcherBytes) return std::nullopt;
      bytes -= kFletcherBytes;
    } else if (filters[i] == H5Z_FILTER_DEFLATE) {
      if (!as_stored) return std::nullopt;
      const auto unpacked = inflater.count(stored.first(static_cast<std::size_t>(bytes)),
                                           chunk_bytes + filters.size() * kFletcherBytes);
      if (!unpacked) return std::nullopt;
      bytes = *unpacked;
      as_stored = false;
    } else {  // shuffle
      as_stored = false;
    }
  }
  return bytes;
}

bool is_understood(H5Z_filter_t filter) {
  return filter == H5Z_FILTER_DEFLATE || filter == H5Z_FILTER_SHUFFLE || filter == H5Z_FILTER_FLETCHER32;
}

std::string misfit(std::uint64_t unpacked, std::uint64_t chunk_bytes) {
  if (unpacked > chunk_bytes)
    return "has a chunk that unpacks to more than " + std::to_string(chunk_bytes) + " bytes";
  return "has a chunk that unpacks to " + std::to_string(unpacked) + " bytes instead of " +
         std::to_string(chunk_bytes);
}

/// Moves `place` to the slab's next chunk, the last dim fastest; `first`: its first one. Whether there is
/// one.
bool advance(std::vector<hsize_t>& place, const std::vector<hsize_t>& first, const Shape& chunk,
             const Shape& offset, const Shape& extent) {
  for (std::size_t dim = place.size(); dim-- > 0;) {
    place[dim] += chunk[dim];
    if (place[dim] < offset[dim] + extent[dim]) return true;
    place[dim] = first[dim];
  }
  return false;
}

}  // namespace

void require_whole_chunks(const Dataset& dataset, const Shape& offset, const Shape& extent) {
  const SilentErrors silent;
  const hid_t id = dataset.id();
  const PropertyList list(check_id(H5Dget_create_plist(id), "has no creation list", id));
  const std::vector<H5Z_filter_t> filters = filters_of(list);
  if (H5Pget_layout(list.id()) != H5D_CHUNKED || filters.empty() || element_count(extent) == 0) return;
  const auto refuse = [&](const std::string& problem) {
    return Error(problem, {.subject = describe(id), .advice = kRepack});
  };
  if (!std::ranges::all_of(filters, is_understood))
    throw refuse("is packed by a filter other than deflate, shuffle and Fletcher-32");
  const DatasetInfo about = info(dataset);
  const Datatype type(check_id(H5Dget_type(id), "has no type", id));
  if (H5Tdetect_class(type.id(), H5T_VLEN) > 0 || H5Tis_variable_str(type.id()) > 0)
    throw refuse("holds packed values of varying length");
  const std::size_t dims = about.chunk.size();
  if (offset.size() != dims || extent.size() != dims) throw slab_mismatch(dataset);
  const std::uint64_t chunk_bytes = element_count(about.chunk) * about.element_bytes;
  const File file(check_id(H5Iget_file_id(id), "has no file", id));
  hsize_t file_bytes = 0;
  check(H5Fget_filesize(file.id(), &file_bytes), "has no size", file.id());
  unsigned edges = 0;
  check(H5Pget_chunk_opts(list.id(), &edges), "has no options of its chunks", id);

  Inflater inflater;
  std::vector<std::byte> stored;
  std::vector<hsize_t> first(dims);
  for (std::size_t dim = 0; dim < dims; ++dim) first[dim] = offset[dim] / about.chunk[dim] * about.chunk[dim];
  std::vector<hsize_t> place = first;
  for (bool more = true; more;) {
    hsize_t bytes = 0;  // 0: never written, so that HDF5 fills it
    check(H5Dget_chunk_storage_size(id, place.data(), &bytes), "has a chunk without a place", id);
    bool at_edge = false;
    for (std::size_t dim = 0; dim < dims; ++dim)
      at_edge = at_edge || place[dim] + about.chunk[dim] > about.shape[dim];
    const bool plain = at_edge && (edges & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
    if (bytes > 0) {
      if (bytes > file_bytes) throw refuse("has a chunk that is larger than its file");
      stored.resize(bytes);
      std::uint32_t left_out = 0;
      check(H5Dread_chunk(id, H5P_DEFAULT, place.data(), &left_out, stored.data()), "has a damaged chunk",
            id);
      const auto unpacked = plain ? bytes : unpacked_bytes(filters, left_out, stored, chunk_bytes, inflater);
      if (!unpacked) throw refuse("has a chunk that cannot be unpacked");
      if (*unpacked != chunk_bytes) throw refuse(misfit(*unpacked, chunk_bytes));
    }
    more = advance(place, first, about.chunk, offset, extent);
  }
}

}  // namespace dtrain::h5
