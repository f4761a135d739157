#include "comm/watch/inquiry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <utility>

#include "comm/mpi/ulfm.hpp"
#include "comm/mpi/unsettled.hpp"
#include "core/clock.hpp"
#include "core/counted.hpp"

namespace dtrain::comm {
namespace {

constexpr int kQuestion = 1;
constexpr int kAnswer = 2;
constexpr auto kLooks = std::chrono::milliseconds(100);
constexpr double kPatienceS = 3.0;
// What MPI sends without waiting for the receiver.
constexpr std::size_t kMostAnswerBytes = 3500;

/// The label of the operation, as bytes; the members follow it.
struct Question {
  std::array<char, 16> operation{};
  std::uint64_t group_id = 0;
  std::uint64_t number = 0;
  std::uint64_t count = 0;
  DataType type = DataType::float32;
  int peer = -1;
  double limit_s = 0;
};

std::vector<std::byte> packed(const Label& overdue, double limit_s) {
  Question question{.group_id = overdue.group_id,
                    .number = overdue.number,
                    .count = overdue.count,
                    .type = overdue.type,
                    .peer = overdue.peer,
                    .limit_s = limit_s};
  overdue.operation.copy(question.operation.data(), question.operation.size() - 1);
  const auto& members = *overdue.members;
  std::vector<std::byte> message(sizeof question + members.size() * sizeof(int));
  std::memcpy(message.data(), &question, sizeof question);
  std::memcpy(message.data() + sizeof question, members.data(), members.size() * sizeof(int));
  return message;
}

}  // namespace

Inquiry::Inquiry(const Communicator& world, const std::vector<int>& first_ranks, std::vector<int> nodes,
                 const FlightRecorder& recorder)
    : world_(world.split(0, world.rank())),
      nodes_(std::move(nodes)),
      recorder_(recorder),
      exceptions_(std::uncaught_exceptions()) {
  for (std::size_t rank = 0; rank < nodes_.size(); ++rank) node_of_[first_ranks[rank]] = nodes_[rank];
  thread_ = std::thread([this] { answer(); });
}

Inquiry::~Inquiry() {
  int revoked = 0;  // after a loss the others ask no more
  if (std::uncaught_exceptions() > exceptions_ &&
      !(ulfm::is_revoked(world_.handle(), &revoked) == MPI_SUCCESS && revoked != 0)) {
    std::this_thread::sleep_for(2 * kLooks);
  }
  stop_ = true;
  thread_.join();
}

void Inquiry::answer() const {
  while (!stop_) {
    int there = 0;
    MPI_Status status;
    const int rc = MPI_Iprobe(MPI_ANY_SOURCE, kQuestion, world_.handle(), &there, &status);
    if (rc == MPI_SUCCESS && there != 0) {
      answer_one(status.MPI_SOURCE);
    } else {
      std::this_thread::sleep_for(kLooks);
    }
  }
}

void Inquiry::answer_one(int asker) const {
  MPI_Status status;
  int bytes = 0;
  if (MPI_Probe(asker, kQuestion, world_.handle(), &status) != MPI_SUCCESS) return;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  std::vector<std::byte> message(static_cast<std::size_t>(bytes));
  if (MPI_Recv(message.data(), bytes, MPI_BYTE, asker, kQuestion, world_.handle(), MPI_STATUS_IGNORE) !=
          MPI_SUCCESS ||
      message.size() < sizeof(Question)) {
    return;
  }
  Question question;
  std::memcpy(&question, message.data(), sizeof question);
  std::vector<int> members((message.size() - sizeof question) / sizeof(int));
  std::memcpy(members.data(), message.data() + sizeof question, members.size() * sizeof(int));
  const Label overdue{.operation = question.operation.data(),
                      .group = "",
                      .number = question.number,
                      .group_id = question.group_id,
                      .members = &members,
                      .peer = question.peer,
                      .count = question.count,
                      .type = question.type};
  const auto text = std::make_shared<std::string>(fmt::format(
      "{}",
      fmt::join(recorder_.findings(overdue, question.limit_s, FlightRecorder::Asker::elsewhere), "; ")));
  text->resize(std::min(text->size(), kMostAnswerBytes));
  // Not waited for: the asker may take nothing any more.
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(text->data(), static_cast<int>(text->size()), MPI_CHAR, asker, kAnswer, world_.handle(),
            &request);
  abandon_send(request, {world_.handle(), asker}, text->data(), text->size(), text);
}

std::vector<std::string> Inquiry::ask(const Label& overdue, double limit_s) const {
  const auto message = std::make_shared<const std::vector<std::byte>>(packed(overdue, limit_s));
  const int here = nodes_[static_cast<std::size_t>(world_.rank())];
  std::map<int, std::vector<int>> unanswered;  // node -> members on it
  for (const int member : overdue.peer >= 0 ? std::vector<int>{overdue.peer} : *overdue.members) {
    const int node = node_of_.at(member);
    if (node != here) unanswered[node].push_back(member);
  }
  std::map<int, MPI_Request> requests;  // by rank
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (!unanswered.contains(nodes_[static_cast<std::size_t>(rank)])) continue;
    MPI_Isend(message->data(), static_cast<int>(message->size()), MPI_BYTE, rank, kQuestion, world_.handle(),
              &requests.emplace(rank, MPI_REQUEST_NULL).first->second);
  }
  std::vector<std::string> findings;
  const double end_s = steady_s() + kPatienceS;
  while (!unanswered.empty() && steady_s() < end_s) {
    int there = 0;
    MPI_Status status;
    const int rc = MPI_Iprobe(MPI_ANY_SOURCE, kAnswer, world_.handle(), &there, &status);
    if (rc != MPI_SUCCESS || there == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    std::string text(static_cast<std::size_t>(length), '\0');
    MPI_Recv(text.data(), length, MPI_CHAR, status.MPI_SOURCE, kAnswer, world_.handle(), MPI_STATUS_IGNORE);
    const bool first = unanswered.erase(nodes_[static_cast<std::size_t>(status.MPI_SOURCE)]) > 0;
    if (first && !text.empty()) findings.push_back(text);
  }
  for (const auto& [node, members] : unanswered) {
    findings.push_back(fmt::format("node {} does not answer ({}): it or the link to it is down", node,
                                   numbered("rank", members)));
  }
  for (auto& [rank, request] : requests)  // of ranks that take no messages any more
    abandon_send(request, {world_.handle(), rank}, message->data(), message->size(), message);
  return findings;
}

}  // namespace dtrain::comm
