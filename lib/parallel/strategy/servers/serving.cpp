#include "parallel/strategy/servers/serving.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "parallel/data_types.hpp"

namespace dtrain::parallel {

Serving::Serving(const StrategyParts& parts, const ServerRoles& roles, const ServerLines& lines,
                 at::Tensor values, Rule rule)
    : parts_(parts), roles_(roles), rule_(std::move(rule)) {
  const auto server = roles.server_at(lines.rank());
  if (!server) return;
  part_ = roles.part(values.numel(), *server);
  // Beside a copy the parameters are another's; memory that is never touched takes no room.
  kept_ = roles.beside() ? at::empty_like(values) : values;
  using Runs = ParameterServer::Parts::Runs;
  server_ = std::make_unique<ParameterServer>(ParameterServer::Parts{
      .lines = lines,
      .queue = parts_.queue,
      .runs = roles.beside() ? Runs::in_a_thread : Runs::as_the_rank,
      .sink = roles.beside() ? static_cast<SpanSink&>(unseen_) : parts_.sink,
      .copies = roles.copies(),
      .part = part_,
      .values = kept_,
      .clock = parts_.clock,
      .update = [this](const at::Tensor& given, double scale, double rate,
                       std::int64_t number) { rule_.update(kept_, given, part_, scale, rate, number); },
      .divides_rate = rule_.divides_rate});
}

Serving::~Serving() {
  if (!thread_.joinable()) return;
  if (!parts_.queue.failed()) parts_.queue.drop("the rank has ended while it served");
  thread_.join();
}

void Serving::keep(const at::Tensor& values) {
  if (!serves()) return;
  const at::NoGradGuard no_grad;
  kept_.narrow(0, part_.begin, part_.size()).copy_(values.narrow(0, part_.begin, part_.size()));
}

void Serving::begin(const WorkRange& steps, int staleness, std::int64_t updates) {
  if (!serves() || begun_) return;
  begun_ = true;
  updates_ = updates;
  if (parts_.data.rank() == roles_.dealer())
    dealing_.emplace(steps, static_cast<int>(parts_.setting.micro_batches), staleness);
  if (roles_.beside()) thread_ = std::thread([this] { serve_in_a_thread(); });
}

std::vector<std::int64_t> Serving::serve() {
  return server_->serve(dealing_ ? &*dealing_ : nullptr, updates_);
}

void Serving::serve_in_a_thread() {
  try {
    late_ = serve();
  } catch (const std::exception& error) {
    failure_ = std::current_exception();
    if (!parts_.queue.failed()) parts_.queue.fail(error.what());  // wakes the thread that computes
  }
}

std::vector<std::int64_t> Serving::finish() {
  if (!serves()) return {};
  begun_ = false;
  if (roles_.beside()) {
    const ScopedSpan span(parts_.sink, Phase::exposed_communication, "serve");
    thread_.join();
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
  } else {
    late_ = serve();
  }
  dealing_.reset();
  return std::exchange(late_, {});
}

void Serving::spread(const at::Tensor& values, const std::vector<at::Tensor>& more) {
  const at::NoGradGuard no_grad;
  if (serves() && !kept_.is_same(values))
    values.narrow(0, part_.begin, part_.size()).copy_(kept_.narrow(0, part_.begin, part_.size()));
  for (int server = 0; server < roles_.servers(); ++server) {
    const auto part = roles_.part(values.numel(), server);
    if (part.size() == 0) continue;
    const auto broadcast = [&](const at::Tensor& all) {
      parts_.data.broadcast(buffer_of(all.narrow(0, part.begin, part.size())), roles_.rank_of(server)).wait();
    };
    broadcast(values);
    for (const auto& other : more) broadcast(other);
  }
}

}  // namespace dtrain::parallel
