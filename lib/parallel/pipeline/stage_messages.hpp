#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "comm/group.hpp"
#include "models/layer.hpp"
#include "parallel/pipeline/schedule.hpp"

namespace dtrain::parallel {

/// Sizes, strides and types of the tensors of a message: enough to make room for them.
struct TensorLayouts {
  struct One {
    at::ScalarType type = at::kFloat;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
  };
  std::vector<One> tensors;

  static TensorLayouts of(const models::Tensors& tensors);
};

/// The activations and gradients that travel between the stages of one pipeline. A schedule says which, and
/// in which order each rank sends: receives are posted in that order, ahead of need where the layout is
/// known.
///
/// The layout of a stage's activations goes before them, unless samples are of one shape: then once for each
/// number of samples. Gradients have the layout of the activations they belong to.
class StageMessages {
 public:
  enum class SampleShapes { alike, varying };
  /// `pipe`: the ranks of the pipeline, in order of their stages. Borrowed. `device`: where floating tensors
  /// that come in are wanted; they travel from device to device where the pipe reaches it.
  StageMessages(comm::Group& pipe, SampleShapes shapes, at::Device device = at::kCPU);

  /// What the other ranks will send here during `schedule`. `samples`: of each of its micro-batches.
  void begin(const Schedule& schedule, std::vector<std::int64_t> samples);

  /// Sends the inputs of `stage`'s forward pass to the rank that holds the stage. Does not wait. Tensors of
  /// bool and of whole numbers of fewer than four bytes arrive as int32.
  void send_activations(int stage, int micro_batch, const models::Tensors& tensors);
  models::Tensors receive_activations(int stage, int micro_batch);

  /// Gradients of the outputs of `stage`: undefined ones travel as zeros, those of integers not at all.
  void send_gradients(int stage, int micro_batch, const models::Tensors& gradients);
  /// One for each output of that stage, undefined for integers.
  models::Tensors receive_gradients(int stage, int micro_batch);

  /// Posts what can be posted, and forgets sends that are done.
  void progress();
  /// Waits until at most `most` messages are on their way to other ranks.
  void limit_outgoing(std::size_t most);
  /// Waits until all sends are done.
  void finish() { limit_outgoing(0); }

 private:
  using Layout = std::shared_ptr<const TensorLayouts>;
  struct Key {
    Action::Kind kind = Action::Kind::forward;  // activations or gradients
    int stage = 0;  // that receives activations, or whose outputs' gradients these are
    int micro_batch = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Incoming {
    models::Tensors tensors;
    std::vector<comm::Handle> handles;
  };
  /// What one rank sends here, in its order.
  struct Peer {
    int rank = 0;
    std::deque<Key> expected;  // not posted yet
    std::vector<std::int64_t> header;
    std::optional<comm::Handle> header_handle;  // of expected.front()
  };
  struct Outgoing {
    models::Tensors tensors;
    std::vector<std::int64_t> header;
    std::vector<comm::Handle> handles;
  };
  bool post_next(Peer& peer, bool wait);
  void post(Peer& peer, const Layout& layout);
  models::Tensors take(const Key& key);
  Layout known_layout(const Key& key) const;
  void remember(int stage, int micro_batch, const Layout& layout);
  void send(int to, Outgoing message);
  int rank_of(int stage) const { return stage % pipe_.size(); }

  comm::Group& pipe_;
  SampleShapes shapes_;
  at::Device device_;
  at::Device place_;  // of floating tensors on their way
  std::vector<std::int64_t> samples_;
  std::vector<Peer> peers_;
  std::map<Key, Incoming> posted_;
  std::deque<Outgoing> outgoing_;
  std::map<std::pair<int, std::int64_t>, Layout> by_samples_;  // receiving stage, samples
  std::map<std::pair<int, int>, Layout> in_flight_;  // receiving stage, micro-batch: both sides' view
};

}  // namespace dtrain::parallel
