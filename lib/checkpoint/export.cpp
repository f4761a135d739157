#include "checkpoint/export.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/file_io.hpp"
#include "checkpoint/part_file.hpp"
#include "checkpoint/safetensors.hpp"
#include "core/error.hpp"

namespace dtrain::checkpoint {
namespace {

constexpr std::string_view kModelGroup = "model/";

/// A whole tensor in memory, which a tied one shares.
struct WholeTensor {
  TensorRef reference;
  std::shared_ptr<const std::vector<std::byte>> data;
};

std::vector<WholeTensor> read_model(const CheckpointReader& checkpoint) {
  std::vector<WholeTensor> tensors;
  for (const TensorEntry& entry : checkpoint.manifest().tensors) {
    if (!entry.name.starts_with(kModelGroup)) continue;
    auto data = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(entry.bytes()));
    checkpoint.read(entry.name, entry.dtype, *data);
    tensors.push_back(
        {.reference = {.slice = Slice::whole(entry.name.substr(kModelGroup.size()), entry.shape),
                       .group = "model",
                       .dtype = entry.dtype,
                       .data = data->data()},
         .data = data});
  }
  for (const auto& [other, name] : checkpoint.info().tied) {  // PyTorch's state_dict has both names
    const auto place = std::ranges::find(
        tensors, name, [](const WholeTensor& tensor) { return tensor.reference.slice.name; });
    if (place == tensors.end()) continue;
    WholeTensor copy = *place;
    copy.reference.slice.name = other;
    tensors.push_back(std::move(copy));
  }
  return tensors;
}

void write_safetensors(const std::filesystem::path& out, const std::vector<WholeTensor>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  std::size_t end = 0;
  for (const WholeTensor& tensor : tensors) {
    const std::size_t begin = std::exchange(end, end + tensor.data->size());
    header[tensor.reference.slice.name] = {{"dtype", safetensors_type(tensor.reference.dtype)},
                                           {"shape", tensor.reference.slice.global_shape},
                                           {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the format allows spaces; the data starts aligned
  std::array<std::byte, 8> length = {};
  for (std::size_t i = 0; i < length.size(); ++i)
    length[i] = static_cast<std::byte>((text.size() >> (8 * i)) & 0xFFU);
  const RawFile file(out, RawFile::Access::create);
  file.write_at(0, length);
  file.write_at(8, std::as_bytes(std::span(text)));
  auto place = static_cast<std::int64_t>(8 + text.size());
  for (const WholeTensor& tensor : tensors) {
    file.write_at(place, *tensor.data);
    place += static_cast<std::int64_t>(tensor.data->size());
  }
  file.sync();
}

void write_h5(const std::filesystem::path& out, const std::vector<WholeTensor>& tensors,
              h5::Library& library) {
  std::vector<TensorRef> references;
  for (const WholeTensor& tensor : tensors) references.push_back(tensor.reference);
  write_part(out, references, library);
}

}  // namespace

void export_model(const CheckpointReader& checkpoint, const std::filesystem::path& out,
                  h5::Library& library) {
  const auto ending = out.extension();
  if (ending != ".h5" && ending != ".safetensors") {
    throw usage_error("has no ending that names a format", out.string(), "end it in .h5 or .safetensors");
  }
  const auto tensors = read_model(checkpoint);
  auto partial = out;
  partial += ".partial";
  std::error_code failed;
  try {
    if (ending == ".h5") {
      write_h5(partial, tensors, library);
    } else {
      write_safetensors(partial, tensors);
    }
    std::filesystem::rename(partial, out);
  } catch (const std::filesystem::filesystem_error& error) {
    std::filesystem::remove(partial, failed);
    throw checkpoint_error("cannot be written (" + error.code().message() + ")", out.string(),
                           "check the path");
  } catch (...) {
    std::filesystem::remove(partial, failed);
    throw;
  }
}

}  // namespace dtrain::checkpoint
