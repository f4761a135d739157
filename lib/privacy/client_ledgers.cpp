#include "privacy/client_ledgers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "core/error.hpp"
#include "core/parse_number.hpp"

namespace dtrain::privacy {
namespace {

constexpr const char* kFirstLineOfClients = "dtrain.privacy.clients 1";
constexpr std::string_view kClient = "client ";

void require_room(const Ledger& ledger) {
  require(ledger.mechanisms().size() <= ClientLedgers::kMostEntries,
          fmt::format("of a client has {} different noises and rates already", ClientLedgers::kMostEntries),
          {.subject = "the ledger of privacy", .advice = "begin a new run"});
}

}  // namespace

std::int64_t ClientLedgers::steps() const {
  std::int64_t sum = 0;
  for (const auto& ledger : ledgers_) sum += ledger.steps();
  return sum;
}

void ClientLedgers::add_steps(std::size_t client, const SampledGaussian& mechanism, std::int64_t count) {
  ledgers_.at(client).add_steps(mechanism, count);
  require_room(ledgers_[client]);
}

void ClientLedgers::write_numbers(std::span<double> numbers) const {
  for (std::size_t client = 0; client < ledgers_.size(); ++client) {
    const auto all = ledgers_[client].numbers();
    std::copy_n(all.begin(), kNumbers, numbers.subspan(client * kNumbers, kNumbers).begin());
  }
}

ClientLedgers ClientLedgers::of_numbers(std::span<const double> numbers) {
  ClientLedgers all(numbers.size() / kNumbers);
  std::vector<double> whole(Ledger::kMostEntries * Ledger::kFields, 0.0);
  for (std::size_t client = 0; client < all.size(); ++client) {
    std::ranges::copy(numbers.subspan(client * kNumbers, kNumbers), whole.begin());
    all.ledgers_[client] = Ledger::of_numbers(whole);
  }
  return all;
}

std::string ClientLedgers::lines() const {
  std::string text = fmt::format("{}\n", kFirstLineOfClients);
  for (std::size_t client = 0; client < ledgers_.size(); ++client) {
    if (ledgers_[client].mechanisms().empty()) continue;
    text += fmt::format("{}{}\n{}", kClient, client, ledgers_[client].lines());
  }
  return text + "end of clients\n";
}

ClientLedgers ClientLedgers::of_lines(const std::string& text, const std::string& file, std::size_t clients) {
  const ErrorContext damaged{.subject = file,
                             .advice = "restore it: without it the run does not know what it has released",
                             .code = ExitCode::checkpoint};
  std::istringstream lines(text);
  std::string line;
  require(std::getline(lines, line) && line == kFirstLineOfClients, "is no ledger of the records of clients",
          damaged);
  ClientLedgers all(clients);
  while (std::getline(lines, line)) {
    if (line == "end of clients") return all;
    require(line.starts_with(kClient), "is no ledger of the records of clients", damaged);
    const auto client = parse_number<std::size_t>(line.substr(kClient.size()));
    require(client && *client < clients, fmt::format("is of other clients than the {} of this run", clients),
            damaged);
    std::string own;
    while (std::getline(lines, line)) {
      own += line + "\n";
      if (line == "end") break;
    }
    all.ledgers_[*client] = Ledger::of_lines(own, file);
    require_room(all.ledgers_[*client]);
  }
  throw Error("is cut off", damaged);
}

void ClientLedgers::take_larger(const ClientLedgers& other) {
  for (std::size_t client = 0; client < ledgers_.size(); ++client) {
    ledgers_[client].take_larger(other.of(client));
    require_room(ledgers_[client]);
  }
}

}  // namespace dtrain::privacy
