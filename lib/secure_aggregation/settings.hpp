#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "secure_aggregation/fixed_point.hpp"
#include "secure_aggregation/graph.hpp"
#include "secure_aggregation/primitives.hpp"

namespace dtrain::secure_aggregation {

/// What a round does, one after another. In each phase each client sends one message, and the server answers
/// all.
enum class Phase { keys, shares, masked_inputs, survivors, unmasking, done };
const char* name_of(Phase phase);

/// What the server and all clients of a round know before it, and agree on: a client refuses keys that were
/// made for other settings.
struct Settings {
  std::uint64_t round = 0;            ///< Never the same twice with the same identities.
  std::vector<PublicKey> identities;  ///< [clients] Ed25519 keys; a client's number is its place here.
  std::size_t length = 0;             ///< Values of a client.
  FixedPoint format;
  int minimum_survivors = 0;  ///< No sum of fewer clients. More than half of the clients.
  double noise_deviation =
      0;  ///< Of the sum, in integers of `format`, with `minimum_survivors` clients; 0: none.

  int clients() const { return static_cast<int>(identities.size()); }
  /// What each client adds, so that the sum has the noise above after every loss that is allowed; 0: none.
  std::uint64_t noise_variance_of_a_client() const;
  /// Throws Error (exit code 2) for numbers of clients, survivors or bits that cannot work.
  void validate() const;
  Digest digest() const;
};

/// An Error of the round: `round N, PHASE: PROBLEM; ADVICE`. Says nothing of a client's data.
[[noreturn]] void fail(std::uint64_t round, Phase phase, const std::string& problem,
                       const std::string& advice);

}  // namespace dtrain::secure_aggregation
