#include "train/recovery/remains.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <span>
#include <sstream>

#include "checkpoint/writer.hpp"
#include "core/error.hpp"
#include "models/slicing/slices.hpp"

namespace dtrain::train {
namespace {

constexpr char kFailed = '!';  // before the reason; a part's entries are JSON

/// Who has what of a step.
struct Step {
  std::vector<int> holders;  // the first rank by pipe * tensor ranks + tensor; -1: none
  int informed = -1;         // the first rank that knows where the run stood
  bool whole() const { return informed >= 0 && std::ranges::find(holders, -1) == holders.end(); }
};

std::map<std::int64_t, Step> steps_held(const std::vector<HeldPart>& held, const topology::MeshShape& shape,
                                        const comm::Communicator& world) {
  std::string mine;
  for (const auto& part : held) {
    mine += fmt::format("{} {} {} ", part.step, part.where.pipe * shape.tensor + part.where.tensor,
                        part.info ? 1 : 0);
  }
  std::map<std::int64_t, Step> steps;
  const auto all = world.all_gather(mine);
  for (int rank = 0; rank < world.size(); ++rank) {
    std::istringstream text(all[static_cast<std::size_t>(rank)]);
    std::int64_t number = 0;
    std::size_t slot = 0;
    int informed = 0;
    while (text >> number >> slot >> informed) {
      Step& step = steps[number];
      step.holders.resize(static_cast<std::size_t>(shape.model_ranks()), -1);
      if (step.holders[slot] < 0) step.holders[slot] = rank;
      if (informed != 0 && step.informed < 0) step.informed = rank;
    }
  }
  return steps;
}

std::span<std::byte> bytes_of(const at::Tensor& values) {
  return {static_cast<std::byte*>(values.data_ptr()), values.nbytes()};
}

/// Brings the tensors of one stage together on the rank that holds its first slices, which writes them.
class Stage {
 public:
  Stage(const std::vector<HeldPart>& held, std::int64_t step, int pipe, int tensor_ranks,
        std::span<const int> holders, const comm::Communicator& world)
      : holders_(holders), world_(world), parts_(static_cast<std::size_t>(tensor_ranks), nullptr) {
    for (const auto& part : held) {
      if (part.step == step && part.where.pipe == pipe)
        parts_[static_cast<std::size_t>(part.where.tensor)] = &part;
    }
  }

  bool writes() const { return holders_[0] == world_.rank(); }

  /// Called by all ranks of world; what comes back belongs to the stage.
  std::vector<checkpoint::TensorRef> gather() {
    const at::NoGradGuard no_grad;
    std::vector<checkpoint::TensorRef> references;
    if (!writes()) {
      for (std::size_t t = 1; t < parts_.size(); ++t) send(t);
      return references;
    }
    for (const auto& tensor : parts_[0]->tensors) {
      whole_.push_back(tensor.slice == nullptr ? tensor.value.contiguous()
                                               : at::empty(tensor.slice->whole, tensor.value.options()));
      if (tensor.slice != nullptr) put(tensor, 0, tensor.value);
    }
    for (std::size_t t = 1; t < parts_.size(); ++t) receive(t);
    for (std::size_t i = 0; i < whole_.size(); ++i) {
      const auto& tensor = parts_[0]->tensors[i];
      references.push_back(reference_to(tensor.group, tensor.name, whole_[i]));
    }
    return references;
  }

 private:
  Range part(const StateTensor& tensor, std::size_t index) const {
    return part_of(models::sliced_extent(*tensor.slice), static_cast<std::int64_t>(index),
                   static_cast<std::int64_t>(parts_.size()));
  }
  void put(const StateTensor& tensor, std::size_t index, const at::Tensor& held) {
    const auto i = static_cast<std::size_t>(&tensor - parts_[0]->tensors.data());
    models::put_part(whole_[i], *tensor.slice, part(tensor, index), held);
  }
  void send(std::size_t index) const {
    if (holders_[index] != world_.rank()) return;
    for (const auto& tensor : parts_[index]->tensors) {
      if (tensor.slice != nullptr) world_.send_bytes(bytes_of(tensor.value.contiguous()), holders_[0]);
    }
  }
  void receive(std::size_t index) {
    const auto& first = parts_[0]->tensors;
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (first[i].slice == nullptr) continue;
      at::Tensor held;
      if (holders_[index] == world_.rank()) {
        held = parts_[index]->tensors[i].value;
      } else {
        const auto shape = models::held_shape(*first[i].slice, part(first[i], index));
        held = at::empty(shape, first[i].value.options().requires_grad(false));
        world_.receive_bytes(bytes_of(held), holders_[index]);
      }
      put(first[i], index, held);
    }
  }

  std::span<const int> holders_;  // by tensor index
  const comm::Communicator& world_;
  std::vector<const HeldPart*> parts_;  // by tensor index; null where this rank has none
  std::vector<at::Tensor> whole_;
};

/// The parts of all stages that this rank writes: their entries of the manifest, or why there are none.
std::vector<std::string> write_parts(const checkpoint::Saving& saving, const std::vector<HeldPart>& held,
                                     std::int64_t number, const Step& step, const topology::MeshShape& shape,
                                     const comm::Communicator& world, h5::Library& library) {
  std::vector<std::string> parts;
  for (int pipe = 0; pipe < shape.pipe; ++pipe) {
    const auto holders =
        std::span(step.holders)
            .subspan(static_cast<std::size_t>(pipe * shape.tensor), static_cast<std::size_t>(shape.tensor));
    Stage stage(held, number, pipe, shape.tensor, holders, world);
    const auto references = stage.gather();
    std::string text;
    try {
      if (stage.writes()) text = saving.write_part(pipe, references, library);
    } catch (const std::exception& error) {
      text = kFailed + std::string(error.what());
    }
    for (auto& part : world.all_gather(text)) {
      if (!part.empty()) parts.push_back(std::move(part));
    }
  }
  return parts;
}

std::string begin(const checkpoint::Saving& saving) {
  try {
    saving.begin();
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// Returns why the checkpoint is not there.
std::string commit(const checkpoint::Saving& saving, const checkpoint::CheckpointInfo& info,
                   const std::vector<std::string>& parts) {
  const auto failed =
      std::ranges::find_if(parts, [](const std::string& part) { return part.front() == kFailed; });
  try {
    if (failed != parts.end()) throw Error(failed->substr(1), {.code = ExitCode::checkpoint});
    saving.commit(info, parts);
    return {};
  } catch (const std::exception& error) {
    saving.abandon();
    return error.what();
  }
}

}  // namespace

Remains save_remains(const std::vector<HeldPart>& held, const topology::MeshShape& shape,
                     const std::filesystem::path& checkpoints, const comm::Communicator& world,
                     h5::Library& library) {
  const auto steps = steps_held(held, shape, world);
  const auto newest =
      std::find_if(steps.rbegin(), steps.rend(), [](const auto& entry) { return entry.second.whole(); });
  if (newest == steps.rend()) return {.problem = "of no step all parts of the model are left"};
  const auto& [number, step] = *newest;
  const bool informed = step.informed == world.rank();
  const checkpoint::Saving saving(checkpoints, number);
  auto problem = world.broadcast(informed ? begin(saving) : std::string(), step.informed);
  if (!problem.empty()) return {.step = number, .problem = problem};
  const auto parts = write_parts(saving, held, number, step, shape, world, library);
  if (informed) {
    const auto mine = std::ranges::find_if(
        held, [number = number](const HeldPart& part) { return part.step == number && part.info; });
    problem = commit(saving, *mine->info, parts);
  }
  return {.step = number, .problem = world.broadcast(problem, step.informed)};
}

}  // namespace dtrain::train
