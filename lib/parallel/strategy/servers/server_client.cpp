#include "parallel/strategy/servers/server_client.hpp"

#include <ATen/core/grad_mode.h>

#include <span>

#include "parallel/data_types.hpp"

namespace dtrain::parallel {

std::optional<WorkUnit> ServerClient::take_work(const at::Tensor& parameters) {
  using Kind = ServerMessage::Kind;
  send({.kind = Kind::work}, 0);
  const auto answer = receive(0, parameters);
  const bool has_work = answer.unit.step > 0;
  for (int server = 1; server < roles_.servers(); ++server)
    send({.kind = has_work ? Kind::pull : Kind::finish, .unit = answer.unit}, server);
  if (!has_work) return std::nullopt;
  for (int server = 1; server < roles_.servers(); ++server) receive(server, parameters);
  return answer.unit;
}

/// The server that deals hears of a gradient when all others have applied their parts.
void ServerClient::push(const ServerMessage& message, const at::Tensor& gradient) {
  const auto numbers = message.kind == ServerMessage::Kind::push ? gradient : at::Tensor();
  for (int server = roles_.servers() - 1; server > 0; --server) send(message, server, numbers);
  for (int server = roles_.servers() - 1; server > 0; --server) receive(server);
  send(message, 0, numbers);
}

std::optional<WorkUnit> ServerClient::draw() {
  send({.kind = ServerMessage::Kind::draw}, 0);
  const auto answer = receive(0);
  if (answer.unit.step == 0) return std::nullopt;
  return answer.unit;
}

void ServerClient::exchange(const at::Tensor& mine, const at::Tensor& theirs) {
  for (int server = 0; server < roles_.servers(); ++server)
    send({.kind = ServerMessage::Kind::exchange}, server, mine);
  for (int server = 0; server < roles_.servers(); ++server) receive(server, theirs);
}

void ServerClient::finish() {
  for (int server = 0; server < roles_.servers(); ++server)
    send({.kind = ServerMessage::Kind::finish}, server);
}

/// `numbers` [n]: the server's part of them follows.
void ServerClient::send(const ServerMessage& message, int server, const at::Tensor& numbers) {
  auto stamped = message;
  stamped.version = versions_[static_cast<std::size_t>(server)];
  if (clock_ != nullptr) stamped.sent_s = clock_->now_s();
  auto fields = stamped.fields();
  const int rank = roles_.rank_of(server);
  const auto header = lines_.ask(comm::Buffer::of(std::span<double>(fields)), rank);
  if (numbers.defined()) {
    const auto part = roles_.part(numbers.numel(), server);
    lines_.ask(buffer_of(numbers.narrow(0, part.begin, part.size())), rank).wait();
  }
  header.wait();
}

/// `numbers` [n]: the server's part of them is asked for.
ServerAnswer ServerClient::receive(int server, const at::Tensor& numbers) {
  const at::NoGradGuard no_grad;
  ServerAnswer::Fields fields{};
  const int rank = roles_.rank_of(server);
  lines_.await(comm::Buffer::of(std::span<double>(fields)), rank).wait();
  const auto answer = ServerAnswer::from(fields);
  double bytes = sizeof fields;
  if (numbers.defined() && answer.unit.step > 0) {
    const auto part = roles_.part(numbers.numel(), server);
    const auto values = numbers.narrow(0, part.begin, part.size());
    lines_.await(buffer_of(values), rank).wait();
    versions_[static_cast<std::size_t>(server)] = answer.version;
    bytes = static_cast<double>(values.nbytes());
  }
  if (clock_ != nullptr) clock_->receive(lines_.world_rank_of(rank), answer.sent_s, bytes);
  return answer;
}

}  // namespace dtrain::parallel
