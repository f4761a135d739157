#include "checkpoint/part_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file_io.hpp"
#include "core/error.hpp"
#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/library.hpp"
#include "h5/types.hpp"

namespace dtrain::checkpoint {
namespace {

std::span<const std::byte> bytes_of(const TensorRef& tensor) {
  const std::int64_t bytes = tensor.slice.count() * element_bytes(tensor.dtype);
  return {static_cast<const std::byte*>(tensor.data), static_cast<std::size_t>(bytes)};
}

h5::Shape unsigned_shape(const std::vector<std::int64_t>& shape) { return {shape.begin(), shape.end()}; }

/// Where the data of each tensor goes; nothing for one without elements.
using Places = std::vector<std::optional<std::uint64_t>>;

Places lay_out(const std::filesystem::path& file, std::span<const TensorRef> tensors, h5::Library& library) {
  const auto names = datasets_of(tensors);
  Places places;
  const auto lock = library.lock();
  h5::File target = h5::create_file(file.string());
  auto name = names.begin();
  for (const TensorRef& tensor : tensors) {
    const h5::Datatype type = h5::file_type(element_type_of(tensor.dtype));
    const h5::Dataset dataset =
        h5::create_contiguous(target.id(), *name++, type.id(), unsigned_shape(tensor.slice.extent));
    h5::write_attribute(dataset.id(), "global_shape", tensor.slice.global_shape);
    h5::write_attribute(dataset.id(), "offset", tensor.slice.offset);
    places.push_back(tensor.slice.count() == 0 ? std::nullopt : std::optional(h5::file_offset(dataset)));
  }
  target.close();
  return places;
}

/// HDF5's errors carry no exit code of ours.
template <typename Action>
auto as_checkpoint_error(const std::filesystem::path& file, Action action) {
  try {
    return action();
  } catch (const Error& error) {
    if (error.code() == ExitCode::checkpoint) throw;
    throw checkpoint_error(error.problem(), error.subject().empty() ? file.string() : error.subject(),
                           error.advice().empty() ? "check the disk and the permissions" : error.advice());
  }
}

/// Of a tensor's slices each has a place of its own, and all say alike what the whole is.
void check_distinct(std::span<const TensorRef> tensors, const std::filesystem::path& file) {
  std::map<std::string, std::vector<const TensorRef*>> of_tensor;
  for (const TensorRef& tensor : tensors) {
    tensor.slice.validate();
    auto& before = of_tensor[tensor.group + "/" + tensor.slice.name];
    const bool fits = std::ranges::all_of(before, [&tensor](const TensorRef* other) {
      return other->dtype == tensor.dtype && other->slice.global_shape == tensor.slice.global_shape &&
             other->slice.offset != tensor.slice.offset;
    });
    if (!fits) {
      throw checkpoint_error("would have two different tensors of this name, or a slice of it twice",
                             file.string() + ":" + tensor.slice.name, "give each tensor a name of its own");
    }
    before.push_back(&tensor);
  }
}

}  // namespace

std::vector<std::string> datasets_of(std::span<const TensorRef> tensors) {
  std::vector<std::string> names;
  std::map<std::string, int> slices;
  for (const TensorRef& tensor : tensors) {
    names.push_back(tensor.group + "/" + tensor.slice.name);
    const int before = slices[names.back()]++;
    if (before > 0) names.back() += fmt::format(".slice-{:05}", before);
  }
  return names;
}

void write_part(const std::filesystem::path& file, std::span<const TensorRef> tensors, h5::Library& library) {
  check_distinct(tensors, file);
  const Places places = as_checkpoint_error(file, [&] { return lay_out(file, tensors, library); });
  const RawFile raw(file, RawFile::Access::change);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (places[i]) raw.write_at(static_cast<std::int64_t>(*places[i]), bytes_of(tensors[i]));
  }
  raw.sync();
}

void read_part(const std::filesystem::path& file, const std::string& dataset, const std::string& dtype,
               const std::vector<std::int64_t>& shape, std::span<std::byte> out, h5::Library& library) {
  const std::int64_t count = static_cast<std::int64_t>(out.size()) / element_bytes(dtype);
  read_part(file, dataset, dtype, shape, {.begin = 0, .length = count, .stride = count, .count = 1}, out,
            library);
}

void read_part(const std::filesystem::path& file, const std::string& dataset, const std::string& dtype,
               const std::vector<std::int64_t>& shape, const Runs& runs, std::span<std::byte> out,
               h5::Library& library) {
  if (out.empty()) return;
  const std::uint64_t place = as_checkpoint_error(file, [&] {
    const auto lock = library.lock();
    const h5::File source = h5::open_file(file.string(), h5::Access::read);
    const h5::Dataset stored = h5::open_dataset(source.id(), dataset);
    h5::require_own_bytes(source.id(), stored);
    const h5::DatasetInfo facts = h5::info(stored);
    if (!facts.little_endian || facts.other_filters || !facts.contiguous) {
      throw checkpoint_error("is compressed, in chunks or big-endian", file.string() + ":/" + dataset,
                             "store it contiguous and little-endian, as h5py does by default");
    }
    if (facts.shape != unsigned_shape(shape) || facts.type != element_type_of(dtype)) {
      throw checkpoint_error("has another shape or type than the manifest says",
                             file.string() + ":/" + dataset, "take another checkpoint");
    }
    return h5::file_offset(stored);
  });
  const RawFile raw(file, RawFile::Access::read);
  const auto item_bytes = element_bytes(dtype);
  const auto run_bytes = static_cast<std::size_t>(runs.length * item_bytes);
  for (std::int64_t i = 0; i < runs.count; ++i) {
    raw.read_at(static_cast<std::int64_t>(place) + (runs.begin + i * runs.stride) * item_bytes,
                out.subspan(static_cast<std::size_t>(i) * run_bytes, run_bytes));
  }
}

}  // namespace dtrain::checkpoint
