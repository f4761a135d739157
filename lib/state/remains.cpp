#include "state/remains.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "checkpoint/writer.hpp"
#include "comm/watch/shared_failure.hpp"
#include "core/error.hpp"
#include "core/shared_failure.hpp"
#include "models/slicing/slices.hpp"
#include "state/gather.hpp"

namespace dtrain::state {
namespace {

/// Which rank has what of a step.
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

/// Between the survivors, for the parts of one stage.
class SurvivorMessages : public PartMessages {
 public:
  /// `holders`: by the index of the part; the first one puts the tensors together.
  SurvivorMessages(const comm::Communicator& world, std::span<const int> holders)
      : world_(world), holders_(holders) {}
  void send(const at::Tensor& part) override { world_.send_bytes(bytes_of(part), holders_.front()); }
  void receive(at::Tensor& part, int index) override {
    world_.receive_bytes(bytes_of(part), holders_[static_cast<std::size_t>(index)]);
  }

 private:
  const comm::Communicator& world_;
  std::span<const int> holders_;
};

/// The tensors of one stage, whole, on the rank that holds its first part, which is to write them; none
/// elsewhere. `holders`: the rank of each part. Called by all ranks of `world`.
std::vector<parallel::StateTensor> gather_stage(const std::vector<HeldPart>& held, std::int64_t step,
                                                int pipe, std::span<const int> holders,
                                                const comm::Communicator& world) {
  const at::NoGradGuard no_grad;
  std::vector<const HeldPart*> parts(holders.size(), nullptr);  // null: another rank is the holder
  for (const auto& part : held) {
    const auto index = static_cast<std::size_t>(part.where.tensor);
    if (part.step == step && part.where.pipe == pipe && holders[index] == world.rank()) parts[index] = &part;
  }
  std::vector<parallel::StateTensor> whole;
  const auto mine = std::ranges::find_if(parts, [](const HeldPart* part) { return part != nullptr; });
  if (mine == parts.end()) return whole;
  const bool writes = holders.front() == world.rank();
  SurvivorMessages messages(world, holders);
  for (std::size_t i = 0; i < (*mine)->tensors.size(); ++i) {
    auto tensor = (*mine)->tensors[i];
    const models::HeldSlice* slice = models::group_slice(tensor.slice);
    if (slice == nullptr) {
      tensor.value = tensor.value.contiguous();
    } else {
      std::vector<at::Tensor> values;
      for (const HeldPart* part : parts) values.push_back(part ? part->tensors[i].value : at::Tensor());
      if (writes) tensor.value = at::empty(slice->whole, tensor.value.options());
      gather_parts(*slice, values, writes ? &tensor.value : nullptr, messages);
    }
    if (writes) whole.push_back(std::move(tensor));
  }
  return whole;
}

/// What the survivors wrote, the same on every rank.
struct Written {
  std::vector<std::string> entries;  ///< Of the manifest.
  std::optional<Error> failure;      ///< Why a part is missing.
};

/// The parts of all stages, each by the rank that holds its first slice. Collective.
Written write_parts(const checkpoint::Saving& saving, const std::vector<HeldPart>& held, std::int64_t number,
                    const Step& step, const topology::MeshShape& shape, const comm::Communicator& world,
                    h5::Library& library) {
  std::vector<std::string> parts;
  std::optional<Error> failure;
  for (int pipe = 0; pipe < shape.pipe; ++pipe) {
    const auto holders =
        std::span(step.holders)
            .subspan(static_cast<std::size_t>(pipe * shape.tensor), static_cast<std::size_t>(shape.tensor));
    const auto whole = gather_stage(held, number, pipe, holders, world);
    std::vector<checkpoint::TensorRef> references;
    for (const auto& tensor : whole)
      references.push_back(reference_to(tensor.group, tensor.name, tensor.value, rectangle_of_stage(tensor)));
    std::string text;
    const auto mine = failure_of([&] {
      if (holders.front() == world.rank()) text = saving.write_part(pipe, references, library);
    });
    if (!failure) failure = mine;
    for (auto& part : world.all_gather(text)) {
      if (!part.empty()) parts.push_back(std::move(part));
    }
  }
  return {std::move(parts), comm::first_failure(failure, world)};
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
  const auto refusal = failure_of([&] {
    if (informed) saving.begin();
  });
  if (const auto first = comm::first_failure(refusal, world))
    return {.step = number, .problem = first->what()};
  const auto written = write_parts(saving, held, number, step, shape, world, library);
  const auto mine = std::ranges::find_if(
      held, [number = number](const HeldPart& part) { return part.step == number && part.info; });
  const auto own = failure_of([&] {
    if (informed && !written.failure) saving.commit(*mine->info, written.entries);
  });
  // What is whole is no loss for want of a link: the run's next checkpoint sets it, or says why not.
  if (informed && !written.failure && !own)
    (void)failure_of([&] { checkpoint::mark(checkpoints, checkpoint::kLast, number); });
  const auto failure = written.failure ? written.failure : comm::first_failure(own, world);
  if (failure && informed) saving.abandon();
  return {.step = number, .problem = failure ? failure->what() : ""};
}

}  // namespace dtrain::state
