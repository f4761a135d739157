#include "checkpoint/weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>
#include <system_error>
#include <utility>

#include "checkpoint/part_file.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/safetensors.hpp"
#include "core/checked_bytes.hpp"
#include "core/error.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/library.hpp"
#include "h5/types.hpp"

namespace dtrain::checkpoint {
namespace {

constexpr std::string_view kGroup = "model/";

class FromCheckpoint final : public Weights {
 public:
  FromCheckpoint(const std::filesystem::path& folder, h5::Library& library, Verify verify)
      : reader_(load(folder, library, verify)) {
    for (const TensorEntry& tensor : reader_.manifest().tensors) {
      if (!tensor.name.starts_with(kGroup)) continue;
      entries_.push_back({tensor.name.substr(kGroup.size()), tensor.dtype, tensor.shape});
    }
  }
  const std::vector<WeightEntry>& entries() const override { return entries_; }
  void read(const WeightEntry& entry, std::span<std::byte> out) const override {
    reader_.read(std::string(kGroup) + entry.name, entry.dtype, out);
  }
  void read(const WeightEntry& entry, const Runs& runs, std::span<std::byte> out) const override {
    reader_.read(std::string(kGroup) + entry.name, entry.dtype, runs, out);
  }
  VocabularyHashes vocabulary() const override { return reader_.info().vocabulary; }

 private:
  CheckpointReader reader_;
  std::vector<WeightEntry> entries_;
};

/// The datasets below `/model`, by their paths from there: HDF5 takes a slash in a tensor's name for a group.
class Tensors {
 public:
  explicit Tensors(hid_t file) : file_(file) { add("model", 0); }
  const std::vector<std::string>& names() const { return names_; }

 private:
  void add(const std::string& group, int depth) {
    constexpr int kDeepest = 16;
    constexpr int kMost = 100'000;
    for (const std::string& name : h5::names(file_, group)) {
      const std::string path = group + "/" + name;
      require(++links_ <= kMost && depth <= kDeepest, "has groups in groups without end", {.subject = group});
      if (h5::kind_of(file_, path) == h5::ObjectKind::group) {
        add(path, depth + 1);
      } else {
        names_.push_back(path.substr(kGroup.size()));
      }
    }
  }

  hid_t file_;
  std::vector<std::string> names_;
  int links_ = 0;
};

class FromH5 final : public Weights {
 public:
  using Weights::read;
  FromH5(std::filesystem::path file, h5::Library& library) : file_(std::move(file)), library_(library) {
    try {
      const auto lock = library.lock();
      const h5::File source = h5::open_file(file_.string(), h5::Access::read);
      const Tensors tensors(source.id());
      for (const std::string& name : tensors.names()) {
        const auto stored = h5::open_dataset(source.id(), std::string(kGroup) + name);
        h5::require_own_bytes(source.id(), stored);
        const auto facts = h5::info(stored);
        entries_.push_back({name, std::string(h5::element_name(facts.type)),
                            std::vector<std::int64_t>(facts.shape.begin(), facts.shape.end())});
      }
    } catch (const Error& error) {
      throw checkpoint_error(
          "is not an HDF5 file with the tensors of a model in /model (" + error.problem() + ")",
          file_.string(), "make one with dtrain export, or h5py's f['model/NAME'] = array");
    }
  }
  const std::vector<WeightEntry>& entries() const override { return entries_; }
  void read(const WeightEntry& entry, std::span<std::byte> out) const override {
    read_part(file_, std::string(kGroup) + entry.name, entry.dtype, entry.shape, out, library_);
  }

 private:
  std::filesystem::path file_;
  h5::Library& library_;
  std::vector<WeightEntry> entries_;
};

}  // namespace

std::int64_t WeightEntry::bytes() const {
  const auto bytes = checked_bytes(shape, dtype == "bfloat16" ? 2 : element_bytes(dtype));
  if (!bytes) throw checkpoint_error("has a shape that cannot be", name, "take another copy");
  return *bytes;
}

const WeightEntry* Weights::find(const std::string& name) const {
  const auto place = std::ranges::find(entries(), name, &WeightEntry::name);
  return place == entries().end() ? nullptr : &*place;
}

void Weights::read(const WeightEntry& entry, const Runs& runs, std::span<std::byte> out) const {
  std::vector<std::byte> whole(static_cast<std::size_t>(entry.bytes()));
  read(entry, whole);
  const auto elements =
      std::accumulate(entry.shape.begin(), entry.shape.end(), std::int64_t{1}, std::multiplies<>());
  copy_runs(whole, whole.size() / static_cast<std::size_t>(std::max<std::int64_t>(elements, 1)), runs, out);
}

std::unique_ptr<const Weights> open_weights(const std::filesystem::path& path, h5::Library& library,
                                            Verify verify) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw checkpoint_error("there is no such file or folder", path.string(), "check the path");
  }
  if (std::filesystem::is_directory(path, ignored))
    return std::make_unique<FromCheckpoint>(path, library, verify);
  if (path.extension() == ".safetensors") return open_safetensors(path);
  if (path.extension() == ".h5" || path.extension() == ".hdf5")
    return std::make_unique<FromH5>(path, library);
  throw usage_error("is neither a checkpoint's folder nor a file of weights", path.string(),
                    "give a folder such as runs/NAME/checkpoints/best, an .h5 or a .safetensors");
}

}  // namespace dtrain::checkpoint
