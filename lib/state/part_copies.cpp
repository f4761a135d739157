#include "state/part_copies.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <nlohmann/json.hpp>

#include <memory>

#include "parallel/data_types.hpp"

namespace dtrain::state {
namespace {

constexpr std::int64_t kWord = 8;  // bytes

std::int64_t words_of(const at::Tensor& value) {
  return (value.numel() * static_cast<std::int64_t>(value.element_size()) + kWord - 1) / kWord;
}

/// How far along its copy of the model, counted as pipe * tensor ranks + tensor, a part's keeper is: on
/// another node for all parts if some distance does that.
int distance_to_keeper(const topology::Mesh& mesh, const topology::Cluster& cluster, int data) {
  const int parts = mesh.shape().model_ranks();
  const auto node = [&](int part) {
    const int rank = mesh.rank_at(
        {.data = data, .pipe = part / mesh.shape().tensor, .tensor = part % mesh.shape().tensor});
    return cluster.ranks[static_cast<std::size_t>(rank)].node;
  };
  for (int distance = 1; distance < parts; ++distance) {
    bool elsewhere = true;
    for (int part = 0; part < parts; ++part)
      elsewhere = elsewhere && node(part) != node((part + distance) % parts);
    if (elsewhere) return distance;
  }
  return 1;
}

}  // namespace

PartCopies::Layout PartCopies::layout_of(const topology::MeshCoordinates& where,
                                         const std::vector<parallel::StateTensor>& tensors) {
  Layout layout{.where = where, .tensors = tensors};
  for (auto& tensor : layout.tensors) {
    layout.words += words_of(tensor.value);
    tensor.value = at::empty(tensor.value.sizes(), tensor.value.options().device(at::kMeta));
  }
  return layout;
}

std::string PartCopies::text_of(const Layout& layout) {
  auto tensors = nlohmann::json::array();
  for (const auto& tensor : layout.tensors) {
    nlohmann::json entry = {{"group", tensor.group},
                            {"name", tensor.name},
                            {"shape", tensor.value.sizes().vec()},
                            {"type", static_cast<int>(tensor.value.scalar_type())}};
    if (tensor.slice != nullptr) {
      const auto& slice = *tensor.slice;
      entry["slice"] = {{"whole", slice.whole},
                        {"view", slice.view},
                        {"dim", slice.dim},
                        {"part", {slice.part.begin, slice.part.end}},
                        {"rest", static_cast<int>(slice.rest)}};
    }
    tensors.push_back(std::move(entry));
  }
  return nlohmann::json(
             {{"pipe", layout.where.pipe}, {"tensor", layout.where.tensor}, {"tensors", std::move(tensors)}})
      .dump();
}

PartCopies::Layout PartCopies::parse(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  std::vector<parallel::StateTensor> tensors;
  for (const auto& entry : json["tensors"]) {
    const auto type = static_cast<at::ScalarType>(entry["type"].get<int>());
    parallel::StateTensor tensor{.group = entry["group"],
                                 .name = entry["name"],
                                 .value = at::empty(entry["shape"].get<models::Shape>(),
                                                    at::TensorOptions().dtype(type).device(at::kMeta)),
                                 .slice = nullptr};
    if (entry.contains("slice")) {
      const auto& slice = entry["slice"];
      tensor.slice = std::make_shared<models::HeldSlice>(
          models::HeldSlice{.whole = slice["whole"].get<models::Shape>(),
                            .view = slice["view"].get<models::Shape>(),
                            .dim = slice["dim"],
                            .part = {slice["part"][0], slice["part"][1]},
                            .rest = static_cast<models::HeldSlice::Rest>(slice["rest"].get<int>())});
    }
    tensors.push_back(std::move(tensor));
  }
  return layout_of({.data = 0, .pipe = json["pipe"], .tensor = json["tensor"]}, tensors);
}

std::vector<parallel::StateTensor> PartCopies::views(const Layout& layout, const at::Tensor& block) {
  auto tensors = layout.tensors;
  std::int64_t next = 0;
  for (auto& tensor : tensors) {
    auto* const data = block.data_ptr<std::int64_t>() + next;
    next += words_of(tensor.value);
    tensor.value =
        at::from_blob(data, tensor.value.sizes(), at::TensorOptions().dtype(tensor.value.scalar_type()));
  }
  return tensors;
}

PartCopies::PartCopies(const Ranks& ranks, const std::vector<parallel::StateTensor>& tensors)
    : world_(ranks.world), own_(layout_of(ranks.mesh.coordinates(ranks.world.rank()), tensors)) {
  const auto& mesh = ranks.mesh;
  const int parts = mesh.shape().model_ranks();
  if (parts > 1) {
    const auto texts = ranks.all_gather(text_of(own_));
    const int distance = distance_to_keeper(mesh, ranks.cluster, own_.where.data);
    const auto rank_at = [&](int part) {
      const int index = part % parts;
      return mesh.rank_at({.data = own_.where.data,
                           .pipe = index / mesh.shape().tensor,
                           .tensor = index % mesh.shape().tensor});
    };
    const int mine = own_.where.pipe * mesh.shape().tensor + own_.where.tensor;
    keeper_ = rank_at(mine + distance);
    kept_ = rank_at(mine + parts - distance);
    others_ = parse(texts[static_cast<std::size_t>(kept_)]);
  }
  for (auto& copy : copies_) {
    copy.own = at::empty({own_.words}, at::kLong);
    copy.others = at::empty({others_.words}, at::kLong);
  }
}

void PartCopies::take(const std::vector<parallel::StateTensor>& tensors,
                      const checkpoint::CheckpointInfo& info) {
  const at::NoGradGuard no_grad;
  Copy& copy = copies_[next_];
  next_ = 1 - next_;
  copy.info.step = 0;  // until it is whole
  auto places = views(own_, copy.own);
  for (std::size_t i = 0; i < tensors.size(); ++i) places[i].value.copy_(tensors[i].value);
  if (keeper_ >= 0) {
    const auto sent = world_.send(parallel::buffer_of(copy.own), keeper_);
    const auto received = world_.receive(parallel::buffer_of(copy.others), kept_);
    sent.wait();
    received.wait();
  }
  copy.info = info;
}

std::vector<HeldPart> PartCopies::held() const {
  std::vector<HeldPart> held;
  for (const auto& copy : copies_) {
    if (copy.info.step == 0) continue;
    held.push_back({copy.info.step, own_.where, views(own_, copy.own), copy.info});
    if (kept_ >= 0) held.push_back({copy.info.step, others_.where, views(others_, copy.others), copy.info});
  }
  return held;
}

}  // namespace dtrain::state
