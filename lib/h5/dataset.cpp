#include "h5/dataset.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/error.hpp"
#include "h5/chunk_check.hpp"
#include "h5/file.hpp"
#include "h5/string_buffer.hpp"
#include "h5/types.hpp"

namespace dtrain::h5 {
namespace {

std::vector<hsize_t> dims_of(const Shape& shape) { return {shape.begin(), shape.end()}; }

Dataspace make_space(const Shape& shape, Extent extent) {
  if (shape.empty()) return Dataspace(check_id(H5Screate(H5S_SCALAR), "HDF5 refuses a scalar", ""));
  const std::vector<hsize_t> dims = dims_of(shape);
  std::vector<hsize_t> most = dims;
  if (extent == Extent::extendible) most[0] = H5S_UNLIMITED;
  return Dataspace(check_id(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), most.data()),
                            "HDF5 refuses a shape", ""));
}

/// Of a dataset without the time of its creation: the same contents make the same file.
PropertyList creation_list(const std::string& subject) {
  PropertyList list(check_id(H5Pcreate(H5P_DATASET_CREATE), "HDF5 has no creation list", subject));
  check(H5Pset_obj_track_times(list.id(), false), "leaving times out is refused", subject);
  return list;
}

Dataset create(hid_t location, const std::string& path, hid_t type, const Dataspace& space,
               const PropertyList& how) {
  const PropertyList links(check_id(H5Pcreate(H5P_LINK_CREATE), "HDF5 has no link list", ""));
  check(H5Pset_create_intermediate_group(links.id(), 1), "HDF5 refuses a link list", "");
  return Dataset(
      check_id(H5Dcreate2(location, path.c_str(), type, space.id(), links.id(), how.id(), H5P_DEFAULT),
               "dataset cannot be created", location, path));
}

Dataspace space_of(const Dataset& dataset) {
  return Dataspace(check_id(H5Dget_space(dataset.id()), "has no shape", dataset.id()));
}

PropertyList creation_of(const Dataset& dataset) {
  return PropertyList(check_id(H5Dget_create_plist(dataset.id()), "has no creation list", dataset.id()));
}

Shape shape_of(const Dataspace& space) {
  std::vector<hsize_t> dims(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space.id())));
  if (!dims.empty()) H5Sget_simple_extent_dims(space.id(), dims.data(), nullptr);
  return {dims.begin(), dims.end()};
}

using Transfer = herr_t (*)(hid_t dataset, hid_t memory_type, hid_t memory_space, hid_t file_space,
                            void* values);

void move_slab(const Dataset& dataset, hid_t memory_type, const Shape& offset, const Shape& extent,
               void* values, Transfer transfer, const char* problem) {
  const SilentErrors silent;
  if (element_count(extent) == 0) return;
  const Dataspace file = space_of(dataset);
  const Dataspace memory = make_space(extent, Extent::fixed);
  if (!extent.empty()) {
    const std::vector<hsize_t> start = dims_of(offset);
    const std::vector<hsize_t> count = dims_of(extent);
    const int dims = H5Sget_simple_extent_ndims(file.id());
    if (start.size() != count.size() || dims != static_cast<int>(count.size())) throw slab_mismatch(dataset);
    check(H5Sselect_hyperslab(file.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
          "has no such slab", dataset.id());
  }
  check(transfer(dataset.id(), memory_type, memory.id(), file.id(), values), problem, dataset.id());
}

herr_t write_values(hid_t dataset, hid_t type, hid_t memory, hid_t file, void* values) {
  return H5Dwrite(dataset, type, memory, file, H5P_DEFAULT, values);
}

herr_t read_values(hid_t dataset, hid_t type, hid_t memory, hid_t file, void* values) {
  return H5Dread(dataset, type, memory, file, H5P_DEFAULT, values);
}

/// Which of the open files holds an object.
unsigned long file_number(hid_t object) {
  H5O_info_t facts{};
  check(H5Oget_info2(object, &facts, H5O_INFO_BASIC), "cannot be looked up", object);
  return facts.fileno;
}

/// What a virtual dataset is made of HDF5 opens by itself, so that nothing checks its chunks or where it
/// lies.
void require_plain_source(const PropertyList& list, std::size_t index, const Dataset& dataset) {
  const File file(check_id(H5Iget_file_id(dataset.id()), "has no file", dataset.id()));
  const auto length = H5Pget_virtual_dsetname(list.id(), index, nullptr, 0);
  std::string name(static_cast<std::size_t>(std::max<ssize_t>(length, 0)), '\0');
  if (length > 0) H5Pget_virtual_dsetname(list.id(), index, name.data(), name.size() + 1);
  if (name.find('%') == std::string::npos && !exists(file.id(), name)) return;  // HDF5 fills it
  const auto is_plain = [&] {
    if (name.find('%') != std::string::npos) return false;
    const Dataset source = open_dataset(file.id(), name);
    const PropertyList made = creation_of(source);
    return file_number(source.id()) == file_number(dataset.id()) &&
           H5Pget_layout(made.id()) == H5D_CONTIGUOUS && H5Pget_external_count(made.id()) == 0;
  };
  require(is_plain(), "is a virtual dataset of others that are chunked or lie elsewhere",
          {.subject = describe(dataset.id()), .advice = "copy it into one dataset"});
}

}  // namespace

std::uint64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

Error slab_mismatch(const Dataset& dataset) {
  return Error("a slab's offset, extent and values do not fit together", {.subject = describe(dataset.id())});
}

Dataset create_chunked(hid_t location, const std::string& path, hid_t type, const Shape& shape,
                       const Chunking& how) {
  const SilentErrors silent;
  const std::string subject = describe(location) + ":" + path;
  require(how.chunk.size() == shape.size() && !shape.empty(),
          "chunk and shape differ in their number of dims", {.subject = subject});
  const PropertyList list = creation_list(subject);
  const std::vector<hsize_t> chunk = dims_of(how.chunk);
  check(H5Pset_chunk(list.id(), static_cast<int>(chunk.size()), chunk.data()), "chunk shape is refused",
        subject);
  if (how.deflate > 0) {
    check(H5Pset_deflate(list.id(), static_cast<unsigned>(how.deflate)), "compression is refused", subject);
  }
  if (how.checksum == Checksum::fletcher32)
    check(H5Pset_fletcher32(list.id()), "checksum is refused", subject);
  return create(location, path, type, make_space(shape, how.extent), list);
}

Dataset create_contiguous(hid_t location, const std::string& path, hid_t type, const Shape& shape) {
  const SilentErrors silent;
  const std::string subject = describe(location) + ":" + path;
  const PropertyList list = creation_list(subject);
  check(H5Pset_layout(list.id(), H5D_CONTIGUOUS), "contiguous layout is refused", subject);
  check(H5Pset_alloc_time(list.id(), H5D_ALLOC_TIME_EARLY), "early allocation is refused", subject);
  check(H5Pset_fill_time(list.id(), H5D_FILL_TIME_NEVER), "no filling is refused", subject);
  return create(location, path, type, make_space(shape, Extent::fixed), list);
}

Dataset open_dataset(hid_t location, const std::string& path) {
  const SilentErrors silent;
  // Without a cache of chunks HDF5 reads one that has no filters by the size of a chunk; for its cache it
  // would take the size that the file says the chunk has, and read beyond a buffer of that size.
  const PropertyList access(check_id(H5Pcreate(H5P_DATASET_ACCESS), "HDF5 has no dataset access list", ""));
  check(H5Pset_chunk_cache(access.id(), 0, 0, 0), "HDF5 refuses to work without a cache", "");
  keep_in_file(access);
  require(exists(location, path), "dataset is missing", {.subject = describe(location) + ":" + path});
  Dataset dataset(
      check_id(H5Dopen2(location, path.c_str(), access.id()), "dataset cannot be opened", location, path));
  const Datatype type(check_id(H5Dget_type(dataset.id()), "has no type", dataset.id()));
  require(is_sound(type.id()), "is damaged: its numbers lie outside their bytes",
          {.subject = describe(dataset.id())});
  return dataset;
}

DatasetInfo info(const Dataset& dataset) {
  const SilentErrors silent;
  DatasetInfo result;
  result.shape = shape_of(space_of(dataset));
  const Datatype type(check_id(H5Dget_type(dataset.id()), "has no type", dataset.id()));
  result.type = element_type(type.id());
  result.element_bytes = H5Tget_size(type.id());
  result.little_endian = H5Tget_order(type.id()) != H5T_ORDER_BE;
  const PropertyList list = creation_of(dataset);
  result.contiguous = H5Pget_layout(list.id()) == H5D_CONTIGUOUS && H5Pget_external_count(list.id()) == 0;
  if (H5Pget_layout(list.id()) == H5D_CHUNKED) {
    std::vector<hsize_t> chunk(result.shape.size());
    check(H5Pget_chunk(list.id(), static_cast<int>(chunk.size()), chunk.data()), "has no chunk shape",
          dataset.id());
    result.chunk.assign(chunk.begin(), chunk.end());
  }
  for (int i = 0; i < H5Pget_nfilters(list.id()); ++i) {
    std::size_t parameters = 0;
    unsigned flags = 0;
    const H5Z_filter_t filter = H5Pget_filter2(list.id(), static_cast<unsigned>(i), &flags, &parameters,
                                               nullptr, 0, nullptr, nullptr);
    (filter == H5Z_FILTER_FLETCHER32 ? result.fletcher32 : result.other_filters) = true;
  }
  return result;
}

std::uint64_t stored_bytes(const Dataset& dataset) {
  const SilentErrors silent;
  return H5Dget_storage_size(dataset.id());
}

void require_own_bytes(hid_t location, const Dataset& dataset) {
  const SilentErrors silent;
  const auto require_own = [&](bool own, const char* how) {
    require(own, std::string("lies in another file: ") + how,
            {.subject = describe(dataset.id()), .advice = "copy it into this file"});
  };
  require_own(file_number(location) == file_number(dataset.id()), "an external link leads to it");
  const PropertyList list = creation_of(dataset);
  require_own(H5Pget_external_count(list.id()) == 0, "it has external storage");
  if (H5Pget_layout(list.id()) != H5D_VIRTUAL) return;
  std::size_t sources = 0;
  check(H5Pget_virtual_count(list.id(), &sources), "has no list of its sources", dataset.id());
  for (std::size_t i = 0; i < sources; ++i) {
    std::array<char, 3> name{};
    const auto length = H5Pget_virtual_filename(list.id(), i, name.data(), name.size());
    require_own(length == 1 && name[0] == '.', "it is a virtual dataset");
    require_plain_source(list, i, dataset);
  }
}

std::uint64_t file_offset(const Dataset& dataset) {
  const SilentErrors silent;
  const haddr_t address = H5Dget_offset(dataset.id());
  require(address != HADDR_UNDEF, "has no single place in the file", {.subject = describe(dataset.id())});
  return address;
}

std::vector<ChunkPlace> chunk_places(const Dataset& dataset) {
  const SilentErrors silent;
  const hid_t subject = dataset.id();
  const Dataspace space = space_of(dataset);
  const std::size_t dims = shape_of(space).size();
  hsize_t chunks = 0;
  check(H5Dget_num_chunks(dataset.id(), space.id(), &chunks), "is not chunked", subject);
  std::vector<ChunkPlace> places(chunks);
  std::vector<hsize_t> offset(dims);
  for (hsize_t i = 0; i < chunks; ++i) {
    unsigned mask = 0;
    haddr_t address = 0;
    hsize_t bytes = 0;
    check(H5Dget_chunk_info(dataset.id(), space.id(), i, offset.data(), &mask, &address, &bytes),
          "chunk " + std::to_string(i) + " has no place", subject);
    places[i] = {.offset = {offset.begin(), offset.end()},
                 .file_offset = address,
                 .bytes = bytes,
                 .filter_mask = mask};
  }
  return places;
}

void set_rows(const Dataset& dataset, std::uint64_t rows) {
  const SilentErrors silent;
  std::vector<hsize_t> dims = dims_of(shape_of(space_of(dataset)));
  require(!dims.empty(), "a scalar has no rows", {.subject = describe(dataset.id())});
  dims[0] = rows;
  check(H5Dset_extent(dataset.id(), dims.data()), "cannot be extended", dataset.id());
}

void write_slab(const Dataset& dataset, hid_t memory_type, const Shape& offset, const Shape& extent,
                const void* values) {
  move_slab(dataset, memory_type, offset, extent, const_cast<void*>(values), write_values,
            "cannot be written");
}

void read_slab(const Dataset& dataset, hid_t memory_type, const Shape& offset, const Shape& extent,
               void* values) {
  require_whole_chunks(dataset, offset, extent);
  move_slab(dataset, memory_type, offset, extent, values, read_values, "cannot be read");
}

void write_strings(hid_t location, const std::string& path, const std::vector<std::string>& values) {
  const SilentErrors silent;
  const StringBuffer buffer = pack_strings(values);
  const Datatype type = string_type(buffer.width);
  const Dataset dataset = create_contiguous(location, path, type.id(), {values.size()});
  write_slab(dataset, type.id(), {0}, {values.size()}, buffer.bytes.data());
}

std::vector<std::string> read_strings(const Dataset& dataset) {
  const SilentErrors silent;
  const std::string subject = describe(dataset.id());
  const Datatype type(check_id(H5Dget_type(dataset.id()), "has no type", subject));
  require(H5Tget_class(type.id()) == H5T_STRING, "does not hold strings", {.subject = subject});
  const Dataspace space = space_of(dataset);
  const std::size_t n = element_count(shape_of(space));
  return unpack_strings(type, space, n, subject, [&](hid_t memory_type, void* values) {
    return H5Dread(dataset.id(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
  });
}

}  // namespace dtrain::h5
