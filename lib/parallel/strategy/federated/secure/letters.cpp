#include "parallel/strategy/federated/secure/letters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "core/error.hpp"

namespace dtrain::parallel {
namespace {

constexpr int kLooksBeforeSleep = 4;
constexpr std::chrono::microseconds kSleepBetweenLooks{
    50};  // short beside a local step; the clients need the cores

/// Bytes travel as whole numbers, the last one filled up.
using Words = std::vector<std::int32_t>;

std::shared_ptr<Words> words_for(std::size_t bytes) {
  return std::make_shared<Words>((bytes + sizeof(std::int32_t) - 1) / sizeof(std::int32_t));
}

comm::Buffer buffer_of_words(const std::shared_ptr<Words>& words) {
  auto buffer = comm::Buffer::of(std::span<std::int32_t>(*words));
  buffer.owner = words;
  return buffer;
}

}  // namespace

/// Before each message; the bytes of a letter follow.
struct Letters::Header {
  enum Kind : std::int64_t { letter, life_sign, end_of_phase, end_of_round };
  std::int64_t kind = letter;
  std::int64_t client = 0;
  std::int64_t bytes = 0;

  using Fields = std::array<std::int64_t, 3>;
};

/// What a rank sends.
struct Letters::Incoming {
  int rank = 0;
  Header::Fields fields{};
  comm::Handle receipt;
  End end = End::phase;
  bool ended = false;
};

void Letters::send_header(int to, const Header& header) {
  Header::Fields fields{header.kind, header.client, header.bytes};
  group_.send(comm::Buffer::of(std::span<std::int64_t>(fields)), to).wait();
}

void Letters::send(int to, int client, secure_aggregation::View bytes) {
  const auto words = words_for(bytes.size());
  std::memcpy(words->data(), bytes.data(), bytes.size());
  send_header(to, {.client = client, .bytes = static_cast<std::int64_t>(bytes.size())});
  if (!words->empty()) group_.send(buffer_of_words(words), to).wait();
}

void Letters::send_life_sign(int to) { send_header(to, {.kind = Header::life_sign}); }

void Letters::send_end(int to, End end) {
  send_header(to, {.kind = end == End::failed ? Header::end_of_round : Header::end_of_phase});
}

void Letters::await(Incoming& incoming) {
  incoming.receipt =
      group_.receive(comm::Buffer::of(std::span<std::int64_t>(incoming.fields)), incoming.rank);
}

/// The header is here, or is waited for. Whether more is to come.
bool Letters::take_message(Incoming& incoming, const Take& take) {
  incoming.receipt.wait();
  const auto [kind, client, bytes] = incoming.fields;
  if (kind == Header::end_of_phase || kind == Header::end_of_round) {
    incoming.end = kind == Header::end_of_round ? End::failed : End::phase;
    incoming.ended = true;
    return false;
  }
  if (kind == Header::life_sign) return true;
  require(kind == Header::letter && bytes >= 0 && static_cast<std::size_t>(bytes) <= most_bytes_,
          "sends what is no message of a secure sum",
          {.subject = fmt::format("rank {}", group_.world_rank_of(incoming.rank)),
           .advice = "start the same dtrain on all ranks"});
  const auto words = words_for(static_cast<std::size_t>(bytes));
  if (!words->empty()) group_.receive(buffer_of_words(words), incoming.rank).wait();
  take(incoming.rank, static_cast<int>(std::clamp<std::int64_t>(client, -1, 1 << 30)),
       std::as_bytes(std::span(*words)).first(static_cast<std::size_t>(bytes)));
  return true;
}

Letters::End Letters::receive(int from, const Take& take) {
  Incoming incoming{.rank = from};
  do {
    await(incoming);
  } while (take_message(incoming, take));
  return incoming.end;
}

void Letters::receive_all(int first, const Take& take) {
  std::vector<std::unique_ptr<Incoming>> all;
  for (int rank = first; rank < group_.size(); ++rank) {
    all.push_back(std::make_unique<Incoming>());
    all.back()->rank = rank;
    await(*all.back());
  }
  std::size_t left = all.size();
  for (int polls = 1; left > 0; ++polls) {
    bool came = false;
    for (auto& incoming : all) {
      if (incoming->ended || !incoming->receipt.done()) continue;
      came = true;
      if (take_message(*incoming, take)) {
        await(*incoming);
      } else {
        --left;
      }
    }
    if (came) continue;
    queue_.progress();  // throws where a rank is lost
    if (polls % kLooksBeforeSleep == 0) std::this_thread::sleep_for(kSleepBetweenLooks);
  }
}

}  // namespace dtrain::parallel
