#include "parallel/strategy/servers/parameter_server.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>
#include <utility>

#include "parallel/data_types.hpp"

namespace dtrain::parallel {
namespace {

constexpr int kPollsBeforeSleep = 4;
constexpr std::chrono::microseconds kSleep{50};  // short beside a micro-batch; the copies need the cores

}  // namespace

/// A copy as the server sees it.
struct ParameterServer::Copy {
  int rank = 0;
  enum class State { busy, waits_for_work, done } state = State::busy;
  ServerMessage::Fields incoming{};
  comm::Handle receipt;  // of `incoming`, or of parameters, where it is busy
  ServerAnswer::Fields outgoing{};
  comm::Handle header;  // of the newest answer
  comm::Handle values;
};

ParameterServer::ParameterServer(Parts parts)
    : parts_(std::move(parts)), given_(at::zeros_like(parts_.values)) {
  for (int rank = 0; rank < parts_.copies; ++rank) {
    copies_.push_back(std::make_unique<Copy>());
    copies_.back()->rank = rank;
  }
}

ParameterServer::~ParameterServer() = default;

std::vector<std::int64_t> ParameterServer::serve(Dealing* dealing, std::int64_t version) {
  const at::NoGradGuard no_grad;
  const ScopedSpan span(parts_.sink, Phase::exposed_communication, "serve");
  dealing_ = dealing;
  version_ = version;
  late_.clear();
  for (auto& copy : copies_) {
    copy->state = Copy::State::busy;
    await_message(*copy);
  }
  const auto is_done = [](const auto& copy) { return copy->state == Copy::State::done; };
  while (!std::ranges::all_of(copies_, is_done)) take(next_message());
  for (auto& copy : copies_) {
    settle(copy->header);
    settle(copy->values);
  }
  return std::exchange(late_, {});
}

void ParameterServer::await_message(Copy& copy) {
  copy.receipt = parts_.lines.hear(comm::Buffer::of(std::span<double>(copy.incoming)), copy.rank);
}

/// As Handle::wait(), which a thread beside the one that computes must not call: its time would be taken for
/// that of the other.
void ParameterServer::settle(const comm::Handle& operation) {
  while (parts_.runs == Parts::Runs::in_a_thread && !operation.done()) {
    parts_.queue.progress();  // throws where the queue has failed
    std::this_thread::sleep_for(kSleep);
  }
  operation.wait();
}

/// With a virtual clock messages are taken in the order of its times, whatever came first: once each copy
/// that may send one has done so.
ParameterServer::Copy& ParameterServer::next_message() {
  for (int polls = 1;; ++polls) {
    if (Copy* const copy = earliest()) return *copy;
    parts_.queue.progress();
    if (parts_.runs == Parts::Runs::in_a_thread || polls % kPollsBeforeSleep == 0)
      std::this_thread::sleep_for(kSleep);
  }
}

ParameterServer::Copy* ParameterServer::earliest() {
  Copy* found = nullptr;
  double found_s = 0;
  for (auto& copy : copies_) {
    if (copy->state != Copy::State::busy) continue;
    const bool here = copy->receipt.done();
    if (parts_.clock == nullptr) {
      if (here) return copy.get();
      continue;
    }
    if (!here) return nullptr;
    const double sent_s = ServerMessage::from(copy->incoming).sent_s;
    if (found == nullptr || sent_s < found_s) {
      found = copy.get();
      found_s = sent_s;
    }
  }
  return found;
}

/// On the virtual clock.
void ParameterServer::arrive(const ServerMessage& message, int copy, double bytes) {
  if (parts_.clock != nullptr) parts_.clock->receive(parts_.lines.world_rank_of(copy), message.sent_s, bytes);
}

void ParameterServer::take(Copy& copy) {
  settle(copy.receipt);  // for its errors; it is here
  const auto message = ServerMessage::from(copy.incoming);
  using Kind = ServerMessage::Kind;
  if (message.kind == Kind::push || message.kind == Kind::skip) {
    apply(message, copy.rank);
    if (dealing_ != nullptr) {
      dealing_->applied(message.unit);
    } else {
      answer(copy, {}, false);
    }
    await_message(copy);
    hand_out_work();
    return;
  }
  if (message.kind == Kind::exchange) {
    exchange(copy, message);
    await_message(copy);
    return;
  }
  arrive(message, copy.rank, sizeof(ServerMessage::Fields));
  if (message.kind == Kind::finish) {
    copy.state = Copy::State::done;
  } else if (message.kind == Kind::pull) {
    answer(copy, {.unit = message.unit, .version = version_}, true);
    await_message(copy);
  } else if (message.kind == Kind::draw) {
    answer(copy, {.unit = dealing_->deal().value_or(WorkUnit{.step = 0})}, false);
    await_message(copy);
  } else {
    copy.state = Copy::State::waits_for_work;
    hand_out_work();
  }
}

/// The part as a message brings it.
void ParameterServer::receive_numbers(int copy) {
  settle(parts_.lines.hear(buffer_of(given_.narrow(0, parts_.part.begin, parts_.part.size())), copy));
}

/// The copy is answered with what its parameters meet.
void ParameterServer::exchange(Copy& copy, const ServerMessage& message) {
  arrive(message, copy.rank, static_cast<double>(parts_.part.size() * given_.element_size()));
  receive_numbers(copy.rank);
  answer(copy, {.unit = message.unit, .version = version_}, true);
  const ScopedSpan span(parts_.sink, Phase::optimizer, "update");
  parts_.update(given_, message.scale, message.rate, ++version_);
}

void ParameterServer::apply(const ServerMessage& message, int copy) {
  const double bytes = static_cast<double>(parts_.part.size() * given_.element_size());
  arrive(message, copy, message.kind == ServerMessage::Kind::push ? bytes : 0);
  if (message.kind == ServerMessage::Kind::skip) return;
  receive_numbers(copy);
  const auto late = static_cast<std::size_t>(version_ - message.version);
  late_.resize(std::max(late_.size(), late + 1));
  ++late_[late];
  const double rate =
      parts_.divides_rate && late > 1 ? message.rate / static_cast<double>(late) : message.rate;
  const ScopedSpan span(parts_.sink, Phase::optimizer, "update");
  parts_.update(given_, message.scale, rate, ++version_);
}

/// To the copies that wait, in their order.
void ParameterServer::hand_out_work() {
  if (dealing_ == nullptr) return;
  for (auto& copy : copies_) {
    if (copy->state != Copy::State::waits_for_work) continue;
    const auto unit = dealing_->deal();
    if (!unit && !dealing_->exhausted()) return;
    answer(*copy, {.unit = unit.value_or(WorkUnit{.step = 0}), .version = version_}, unit.has_value());
    copy->state = unit ? Copy::State::busy : Copy::State::done;
    if (unit) await_message(*copy);
  }
}

/// The part is sent as it is now: later updates must not reach a message on its way.
void ParameterServer::answer(Copy& copy, const ServerAnswer& answer, bool with_parameters) {
  settle(copy.header);
  settle(copy.values);
  ServerAnswer stamped = answer;
  if (parts_.clock != nullptr) stamped.sent_s = parts_.clock->now_s();
  copy.outgoing = stamped.fields();
  copy.header = parts_.lines.answer(comm::Buffer::of(std::span<double>(copy.outgoing)), copy.rank);
  if (!with_parameters) return;
  const auto now = parts_.values.narrow(0, parts_.part.begin, parts_.part.size()).clone();
  auto buffer = buffer_of(now);
  buffer.owner = std::make_shared<at::Tensor>(now);
  copy.values = parts_.lines.answer(buffer, copy.rank);
}

}  // namespace dtrain::parallel
