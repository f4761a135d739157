#include "parallel/pipeline/stage_messages.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "parallel/data_types.hpp"

namespace dtrain::parallel {
namespace {

// A layout as numbers: how many tensors, then type, dims, sizes and strides of each.
constexpr std::size_t kHeader = 1024;  // room for 100 images, or 170 tensors [n, features]
constexpr std::size_t kAhead = 2;      // messages of one rank that may have room before they are needed

std::vector<std::int64_t> encoded(const TensorLayouts& layouts) {
  std::vector<std::int64_t> header = {static_cast<std::int64_t>(layouts.tensors.size())};
  for (const auto& one : layouts.tensors) {
    header.push_back(static_cast<std::int64_t>(one.type));
    header.push_back(static_cast<std::int64_t>(one.sizes.size()));
    header.insert(header.end(), one.sizes.begin(), one.sizes.end());
    header.insert(header.end(), one.strides.begin(), one.strides.end());
  }
  require(header.size() <= kHeader,
          fmt::format("{} tensors flow between two layers, more than a message describes",
                      layouts.tensors.size()),
          {.subject = "--mesh",
           .advice = "use another number of stages, pipe=N, which cuts the model elsewhere, or one operator "
                     "such as nn.LSTM in place of a loop over many steps",
           .code = ExitCode::usage});
  header.resize(kHeader);
  return header;
}

TensorLayouts decoded(const std::vector<std::int64_t>& header) {
  TensorLayouts layouts;
  auto next = header.begin();
  const auto count = *next++;
  for (std::int64_t i = 0; i < count; ++i) {
    TensorLayouts::One one{.type = static_cast<at::ScalarType>(*next++), .sizes = {}, .strides = {}};
    const auto dims = *next++;
    one.sizes.assign(next, next + dims);
    next += dims;
    one.strides.assign(next, next + dims);
    next += dims;
    layouts.tensors.push_back(std::move(one));
  }
  return layouts;
}

/// Dense memory in any order of dims travels as it is, from where the pipe reaches it.
at::Tensor dense(const at::Tensor& tensor, at::Device place) {
  const at::Tensor here = tensor.is_floating_point() ? tensor.detach().to(place) : tensor.detach().cpu();
  return here.is_non_overlapping_and_dense() ? here : here.contiguous();
}

/// Masks and small whole numbers travel as int32.
models::Tensors exchangeable(const models::Tensors& tensors) {
  models::Tensors made;
  for (const auto& tensor : tensors) {
    const auto type = tensor.scalar_type();
    const bool travels = tensor.is_floating_point() || type == at::kLong || type == at::kInt;
    made.push_back(travels ? tensor : tensor.to(at::kInt));
  }
  return made;
}

at::Device place_of(const TensorLayouts::One& one, at::Device place) {
  return at::isFloatingType(one.type) ? place : at::Device(at::kCPU);
}

at::Tensor room_for(const TensorLayouts::One& one, at::Device place) {
  const auto options = at::TensorOptions().dtype(one.type).device(place_of(one, place));
  return at::empty_strided(one.sizes, one.strides, options);
}

/// The same values in the memory order that the receiver has room for.
at::Tensor laid_out(const at::Tensor& tensor, const TensorLayouts::One& one, at::Device place) {
  require(tensor.sizes() == at::IntArrayRef(one.sizes) && tensor.scalar_type() == one.type,
          "as many samples as before came to another shape", {.subject = "pipeline"});
  const bool lies_right = tensor.strides() == at::IntArrayRef(one.strides);
  if (lies_right && tensor.device() == place_of(one, place)) return tensor.detach();
  return room_for(one, place).copy_(tensor.detach());
}

bool has_gradient(const TensorLayouts::One& one) { return at::isFloatingType(one.type); }

}  // namespace

TensorLayouts TensorLayouts::of(const models::Tensors& tensors) {
  TensorLayouts layouts;
  for (const auto& tensor : tensors)
    layouts.tensors.push_back({tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec()});
  return layouts;
}

StageMessages::StageMessages(comm::Group& pipe, SampleShapes shapes, at::Device device)
    : pipe_(pipe), shapes_(shapes), device_(device), place_(carrier_of(pipe, device).place) {}

void StageMessages::begin(const Schedule& schedule, std::vector<std::int64_t> samples) {
  samples_ = std::move(samples);
  in_flight_.clear();
  posted_.clear();
  peers_.clear();
  const int me = pipe_.rank();
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    if (rank == me) continue;
    Peer peer{.rank = rank};
    for (const Action& action : schedule.of_rank[static_cast<std::size_t>(rank)]) {
      const bool forward = action.kind == Action::Kind::forward;
      const int to = action.stage + (forward ? 1 : -1);
      if (to < 0 || to >= schedule.stages() || schedule.rank_of(to) != me) continue;
      peer.expected.push_back({action.kind, to, action.micro_batch});
    }
    if (!peer.expected.empty()) peers_.push_back(std::move(peer));
  }
}

StageMessages::Layout StageMessages::known_layout(const Key& key) const {
  if (key.kind == Action::Kind::backward) {
    const auto place = in_flight_.find({key.stage + 1, key.micro_batch});
    return place == in_flight_.end() ? nullptr : place->second;
  }
  if (shapes_ == SampleShapes::varying) return nullptr;
  const auto place = by_samples_.find({key.stage, samples_.at(static_cast<std::size_t>(key.micro_batch))});
  return place == by_samples_.end() ? nullptr : place->second;
}

void StageMessages::remember(int stage, int micro_batch, const Layout& layout) {
  in_flight_[{stage, micro_batch}] = layout;
  if (shapes_ == SampleShapes::alike)
    by_samples_[{stage, samples_.at(static_cast<std::size_t>(micro_batch))}] = layout;
}

void StageMessages::send(int to, Outgoing message) {
  outgoing_.push_back(std::move(message));
  Outgoing& kept = outgoing_.back();
  if (!kept.header.empty()) kept.handles.push_back(pipe_.send(comm::Buffer::of(std::span(kept.header)), to));
  for (const auto& tensor : kept.tensors) {
    if (tensor.numel() == 0) continue;
    kept.handles.push_back(carrier_of(pipe_, tensor.device()).group.send(buffer_of(tensor), to));
  }
}

void StageMessages::send_activations(int stage, int micro_batch, const models::Tensors& given) {
  const auto tensors = exchangeable(given);
  Outgoing message;
  auto layout = known_layout({Action::Kind::forward, stage, micro_batch});
  if (layout != nullptr) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      message.tensors.push_back(laid_out(tensors[i], layout->tensors.at(i), place_));
  } else {
    for (const auto& tensor : tensors) message.tensors.push_back(dense(tensor, place_));
    layout = std::make_shared<const TensorLayouts>(TensorLayouts::of(message.tensors));
    message.header = encoded(*layout);
  }
  remember(stage, micro_batch, layout);
  send(rank_of(stage), std::move(message));
}

void StageMessages::send_gradients(int stage, int micro_batch, const models::Tensors& gradients) {
  const Layout layout = in_flight_.at({stage + 1, micro_batch});
  Outgoing message;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto& one = layout->tensors.at(i);
    if (!has_gradient(one)) continue;
    message.tensors.push_back(gradients[i].defined() ? laid_out(gradients[i], one, place_)
                                                     : room_for(one, place_).zero_());
  }
  in_flight_.erase({stage + 1, micro_batch});
  send(rank_of(stage), std::move(message));
}

void StageMessages::post(Peer& peer, const Layout& layout) {
  const Key key = peer.expected.front();
  peer.expected.pop_front();
  const bool activations = key.kind == Action::Kind::forward;
  if (activations) remember(key.stage, key.micro_batch, layout);
  Incoming& incoming = posted_[key];
  for (const auto& one : layout->tensors) {
    if (!activations && !has_gradient(one)) {
      incoming.tensors.emplace_back();
      continue;
    }
    incoming.tensors.push_back(room_for(one, place_));
    const auto& tensor = incoming.tensors.back();
    if (tensor.numel() > 0) {
      incoming.handles.push_back(
          carrier_of(pipe_, tensor.device()).group.receive(buffer_of(tensor), peer.rank));
    }
  }
  if (!activations) in_flight_.erase({key.stage + 1, key.micro_batch});
}

// True when the peer's next message has been posted. Without `wait` only where nothing has to be waited for.
bool StageMessages::post_next(Peer& peer, bool wait) {
  const Key key = peer.expected.front();
  auto layout = known_layout(key);
  if (layout == nullptr && key.kind == Action::Kind::forward) {
    if (!peer.header_handle) {
      peer.header.resize(kHeader);
      peer.header_handle = pipe_.receive(comm::Buffer::of(std::span(peer.header)), peer.rank);
    }
    if (!wait && !peer.header_handle->done()) return false;
    peer.header_handle->wait();
    peer.header_handle.reset();
    layout = std::make_shared<const TensorLayouts>(decoded(peer.header));
  }
  if (layout == nullptr) return false;  // gradients of what has not been computed yet
  post(peer, layout);
  return true;
}

models::Tensors StageMessages::take(const Key& key) {
  auto place = posted_.find(key);
  if (place == posted_.end()) {
    const auto peer = std::ranges::find_if(peers_, [&key](const Peer& one) {
      return std::ranges::find(one.expected, key) != one.expected.end();
    });
    require(peer != peers_.end(), "a stage waits for a message that no rank sends", {.subject = "pipeline"});
    while ((place = posted_.find(key)) == posted_.end()) {
      require(post_next(*peer, true), "a stage waits for gradients of what it has not computed",
              {.subject = "pipeline"});
    }
  }
  auto incoming = std::move(place->second);
  posted_.erase(place);
  progress();
  for (const auto& handle : incoming.handles) handle.follow();
  if (device_.is_cpu()) return std::move(incoming.tensors);
  for (auto& tensor : incoming.tensors) {
    if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.to(device_);
  }
  return std::move(incoming.tensors);
}

models::Tensors StageMessages::receive_activations(int stage, int micro_batch) {
  return take({Action::Kind::forward, stage, micro_batch});
}

models::Tensors StageMessages::receive_gradients(int stage, int micro_batch) {
  return take({Action::Kind::backward, stage, micro_batch});
}

void StageMessages::progress() {
  while (!outgoing_.empty() && std::ranges::all_of(outgoing_.front().handles, &comm::Handle::done))
    outgoing_.pop_front();
  for (Peer& peer : peers_) {
    while (!peer.expected.empty() && posted_.size() < kAhead * peers_.size() && post_next(peer, false)) {
    }
  }
}

void StageMessages::limit_outgoing(std::size_t most) {
  while (outgoing_.size() > most) {
    for (const auto& handle : outgoing_.front().handles) handle.wait();
    outgoing_.pop_front();
  }
}

}  // namespace dtrain::parallel
