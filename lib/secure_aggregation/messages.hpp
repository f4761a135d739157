#pragma once

#include <cstdint>
#include <vector>

#include "secure_aggregation/primitives.hpp"
#include "secure_aggregation/settings.hpp"

namespace dtrain::secure_aggregation {

// What clients and the server send, and its bytes. A message begins with the version of this format, its kind
// and its round; one that a client sends, with the client. Lists of clients ascend. decode() throws Error,
// naming round and phase, for bytes that are no such message: nothing of them is used.

/// Phase keys, from a client: what others need to agree on secrets with it.
struct Keys {
  int client = 0;
  PublicKey mask_key = {};   ///< X25519: agrees on masks. Its private key is shared out.
  PublicKey share_key = {};  ///< X25519: agrees on keys of shares. Its private key stays with the client.
  Digest self_seed = {};     ///< SHA-256 of the seed of the self mask, so that a wrong one is found.
  Signature signature = {};  ///< By the client's identity, over signed_keys().
};

/// Phase shares, to all clients: the keys of those that sent some.
struct Roster {
  std::vector<Keys> keys;
};

/// A share of the private mask key and one of the self mask's seed, 32 bytes each, sealed for one client.
struct SealedShares {
  int client = 0;  ///< To which, or in what the server sends: from which.
  Block<80> sealed = {};
};

/// Phase shares, from a client: for each of its neighbours.
struct ShareBundle {
  int client = 0;
  std::vector<SealedShares> shares;
};

/// Phase masked inputs, to a client: which clients sent shares, and those for this client.
struct ShareDelivery {
  std::vector<int> sharers;
  std::vector<SealedShares> shares;
};

/// A signature of a client's identity.
struct ClientSignature {
  int client = 0;
  Signature signature = {};
};

/// Phase masked inputs, from a client. Its signature, over signed_sharers(), says with which clients it
/// shares masks.
struct MaskedInput {
  int client = 0;
  Signature signature = {};
  Bytes words;  ///< [length + 1] elements of the ring.
};

/// Phase survivors, to all clients: whose masked inputs are in the sum, with the signatures that came with
/// them.
struct Survivors {
  std::vector<ClientSignature> inputs;
};

/// Phase unmasking, to all clients: the signatures, over signed_survivors(), that clients sent in phase
/// survivors.
struct SignatureList {
  std::vector<ClientSignature> signatures;
};

/// One share as its holder gives it back.
struct RevealedShare {
  int owner = 0;
  bool of_self_seed = false;  ///< Else of the private mask key.
  Block<32> bytes = {};
};

/// Phase unmasking, from a client.
struct Reveal {
  int client = 0;
  std::vector<RevealedShare> shares;
};

Bytes encode(const Settings& settings, const Keys& message);
Bytes encode(const Settings& settings, const Roster& message);
Bytes encode(const Settings& settings, const ShareBundle& message);
Bytes encode(const Settings& settings, const ShareDelivery& message);
Bytes encode(const Settings& settings, const MaskedInput& message);
Bytes encode(const Settings& settings, const Survivors& message);
Bytes encode(const Settings& settings, const ClientSignature& message);
Bytes encode(const Settings& settings, const SignatureList& message);
Bytes encode(const Settings& settings, const Reveal& message);

/// For the types above. Throws Error.
template <class Message>
Message decode(const Settings& settings, View bytes);
template <>
Keys decode<Keys>(const Settings& settings, View bytes);
template <>
Roster decode<Roster>(const Settings& settings, View bytes);
template <>
ShareBundle decode<ShareBundle>(const Settings& settings, View bytes);
template <>
ShareDelivery decode<ShareDelivery>(const Settings& settings, View bytes);
template <>
MaskedInput decode<MaskedInput>(const Settings& settings, View bytes);
template <>
Survivors decode<Survivors>(const Settings& settings, View bytes);
template <>
ClientSignature decode<ClientSignature>(const Settings& settings, View bytes);
template <>
SignatureList decode<SignatureList>(const Settings& settings, View bytes);
template <>
Reveal decode<Reveal>(const Settings& settings, View bytes);

/// What a client's identity signs in phase keys.
Bytes signed_keys(const Digest& settings, const Keys& keys);
/// What it signs in phase masked inputs and in phase survivors. `session`: SHA-256 of settings and roster.
Bytes signed_sharers(const Digest& session, const std::vector<int>& sharers);
Bytes signed_survivors(const Digest& session, const std::vector<int>& sharers,
                       const std::vector<int>& survivors);

}  // namespace dtrain::secure_aggregation
