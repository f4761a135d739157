// What a round of secure aggregation costs: CPU time of each client and of the server, and bytes, beside
// those of the plain vectors. All clients run one after another in this process; the lost ones send no masked
// input, the dearest moment to go.
//   dtrain_perf_secure_aggregation [CLIENTS VALUES LOST RING_BITS NOISE]    defaults: 100 222360 30 32 0
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "secure_aggregation/client.hpp"
#include "secure_aggregation/server.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::secure_aggregation;

double cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double wall_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Cost {
  std::vector<double> client_s;
  double server_s = 0;
  double wall_s = 0;
  std::size_t up = 0;  ///< Bytes of a client that stayed, the mean.
  std::size_t down = 0;
  bool right = false;
};

Bytes answer(Client& client, Phase phase, View message, const std::vector<float>& values) {
  switch (phase) {
    case Phase::keys:
      return client.advertise_keys();
    case Phase::shares:
      return client.share_keys(message);
    case Phase::masked_inputs:
      return client.mask_input(message, values, 1);
    case Phase::survivors:
      return client.sign_survivors(message);
    case Phase::unmasking:
      return client.reveal_shares(message);
    case Phase::done:
      break;
  }
  return {};
}

/// Whether this client is one of the lost, which are spread evenly over all.
bool goes(int number, int lost, int clients) {
  return (number + 1) * lost / clients > number * lost / clients;
}

Cost measured(Settings settings, int clients, int lost) {
  std::vector<std::unique_ptr<privacy::Keystream>> randoms;
  std::vector<Secret> identities;
  for (int i = 0; i < clients; ++i) {
    randoms.push_back(std::make_unique<privacy::Keystream>());
    randoms.back()->fill(identities.emplace_back().bytes());
    settings.identities.push_back(ed25519_public(identities.back()));
  }
  std::vector<std::unique_ptr<Client>> all;
  for (int i = 0; i < clients; ++i) {
    const auto place = static_cast<std::size_t>(i);
    all.push_back(std::make_unique<Client>(settings, i, identities[place], *randoms[place]));
  }
  Cost cost;
  cost.client_s.resize(static_cast<std::size_t>(clients));
  Server server(settings);
  std::vector<float> values(settings.length);
  std::vector<std::int64_t> expected(settings.length, 0);
  const double begun_s = wall_s();
  while (server.phase() != Phase::done) {
    const auto phase = server.phase();
    for (const int number : server.expected()) {
      if (phase == Phase::masked_inputs && goes(number, lost, clients)) continue;
      const auto place = static_cast<std::size_t>(number);
      if (phase == Phase::masked_inputs) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<float>((i * 31 + place * 17) % 2001) / 1000 - 1;
        }
        const auto plain = encode(settings.format, values, 1, "plain");
        for (std::size_t i = 0; i < values.size(); ++i)
          expected[i] += element(settings.format, plain.words, i);
      }
      double start_s = cpu_s();
      const auto message = server.message_for(number);
      cost.server_s += cpu_s() - start_s;
      start_s = cpu_s();
      const auto reply = answer(*all[place], phase, message, values);
      cost.client_s[place] += cpu_s() - start_s;
      start_s = cpu_s();
      server.take(number, reply);
      cost.server_s += cpu_s() - start_s;
      if (!goes(number, lost, clients)) {
        cost.up += reply.size();
        cost.down += message.size();
      }
    }
    const double start_s = cpu_s();
    server.close_phase();
    cost.server_s += cpu_s() - start_s;
  }
  cost.wall_s = wall_s() - begun_s;
  const auto counted = static_cast<std::size_t>(std::max(1, clients - lost));
  cost.up /= counted;
  cost.down /= counted;
  cost.right = settings.noise_deviation > 0 || server.sum().values == expected;
  return cost;
}

void print(const Settings& settings, int clients, int lost, const Cost& cost) {
  auto sorted = cost.client_s;
  std::sort(sorted.begin(), sorted.end());
  double all_s = cost.server_s;
  for (const double one_s : sorted) all_s += one_s;
  const double plain = static_cast<double>(settings.length) * settings.format.ring_bits / 8;
  const auto plan = plan_graph(clients, settings.minimum_survivors);
  fmt::print(
      "{} clients, {} values, {} lost, ring of {} bits, {} neighbours, {} shares: client {:.1f} ms (median; "
      "most {:.1f}), "
      "server {:.2f} s, server and all clients {:.2f} s of CPU ({:.2f} s by the clock); bytes up {} ({:.3f} "
      "x plain), down {}"
      " (up and down {:.3f} x plain); sum {}\n",
      clients, settings.length, lost, settings.format.ring_bits, plan.neighbours, plan.share_threshold,
      1e3 * sorted[sorted.size() / 2], 1e3 * sorted.back(), cost.server_s, all_s, cost.wall_s, cost.up,
      static_cast<double>(cost.up) / plain, cost.down, static_cast<double>(cost.up + cost.down) / plain,
      cost.right ? "right" : "WRONG");
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int index, double otherwise) {
    return argc > index ? std::atof(argv[index]) : otherwise;
  };
  const int clients = static_cast<int>(number(1, 100));
  const int lost = static_cast<int>(number(3, 30));
  Settings settings{.round = 1, .length = static_cast<std::size_t>(number(2, 222360))};
  settings.format = {.ring_bits = static_cast<int>(number(4, 32)), .value_bits = 16, .weight_bits = 0};
  settings.minimum_survivors = std::max(clients - lost, clients / 2 + 1);
  settings.noise_deviation = number(5, 0);
  bool right = true;
  for (const int gone : {0, lost}) {
    const auto cost = measured(settings, clients, gone);
    print(settings, clients, gone, cost);
    right = right && cost.right;
  }
  return right ? 0 : 1;
}
