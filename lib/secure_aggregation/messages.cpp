#include "secure_aggregation/messages.hpp"

#include <string>

#include "secure_aggregation/byte_io.hpp"

namespace dtrain::secure_aggregation {
namespace {

constexpr std::uint8_t kVersion = 1;
enum class Sender : std::uint8_t { client, server };

void put_header(Writer& writer, const Settings& settings, Phase phase, Sender sender) {
  writer.integer(kVersion);
  writer.integer(static_cast<std::uint8_t>(2 * static_cast<int>(phase) + static_cast<int>(sender)));
  writer.integer(settings.round);
}

void put_client(Writer& writer, int client) { writer.integer(static_cast<std::uint32_t>(client)); }

void put_clients(Writer& writer, const std::vector<int>& clients) {
  writer.integer(static_cast<std::uint32_t>(clients.size()));
  for (const int client : clients) put_client(writer, client);
}

void put_keys(Writer& writer, const Keys& keys) {
  put_client(writer, keys.client);
  writer.bytes(keys.mask_key);
  writer.bytes(keys.share_key);
  writer.bytes(keys.self_seed);
  writer.bytes(keys.signature);
}

void put_shares(Writer& writer, const std::vector<SealedShares>& shares) {
  writer.integer(static_cast<std::uint32_t>(shares.size()));
  for (const auto& share : shares) {
    put_client(writer, share.client);
    writer.bytes(share.sealed);
  }
}

void put_signature(Writer& writer, const ClientSignature& signature) {
  put_client(writer, signature.client);
  writer.bytes(signature.signature);
}

void put_signatures(Writer& writer, const std::vector<ClientSignature>& signatures) {
  writer.integer(static_cast<std::uint32_t>(signatures.size()));
  for (const auto& signature : signatures) put_signature(writer, signature);
}

/// Reads one message and refuses what is none.
class Parser {
 public:
  Parser(const Settings& settings, View bytes, Phase phase, Sender sender)
      : settings_(settings), phase_(phase), reader_(bytes) {
    const auto version = reader_.integer<std::uint8_t>();
    const auto kind = reader_.integer<std::uint8_t>();
    const auto round = reader_.integer<std::uint64_t>();
    if (version != kVersion) refuse("is of another version of the format");
    if (kind != 2 * static_cast<int>(phase) + static_cast<int>(sender)) refuse("is of another kind");
    if (round != settings.round) refuse("is of another round");
  }

  int client() {
    const auto number = reader_.integer<std::uint32_t>();
    if (number >= settings_.identities.size()) refuse("names a client that is not there");
    return static_cast<int>(number);
  }

  /// Of a list whose entries have `bytes` each.
  std::size_t count(std::size_t bytes) {
    const auto number = reader_.integer<std::uint32_t>();
    if (number > reader_.left() / bytes) refuse("is cut short");
    return number;
  }

  /// A client behind `last`, the one before it in its list.
  int next_client(int last) {
    const int next = client();
    if (next <= last) refuse("has a list of clients that does not ascend");
    return next;
  }

  std::vector<int> clients() {
    std::vector<int> list(count(4));
    int last = -1;
    for (int& entry : list) entry = last = next_client(last);
    return list;
  }

  std::vector<SealedShares> shares() {
    std::vector<SealedShares> list(count(84));
    int last = -1;
    for (auto& entry : list) {
      entry.client = last = next_client(last);
      entry.sealed = reader_.block<80>();
    }
    return list;
  }

  std::vector<ClientSignature> signatures() {
    std::vector<ClientSignature> list(count(68));
    int last = -1;
    for (auto& entry : list) {
      entry.client = last = next_client(last);
      entry.signature = reader_.block<64>();
    }
    return list;
  }

  Reader& reader() { return reader_; }

  void end() {
    if (!reader_.ended()) refuse("is cut short or too long");
  }

  [[noreturn]] void refuse(const char* what) const {
    fail(settings_.round, phase_, std::string("a message ") + what,
         "leave its sender out, or repeat the round");
  }

 private:
  const Settings& settings_;
  Phase phase_;
  Reader reader_;
};

Keys parsed_keys(Parser& parser, int last) {
  Keys keys;
  keys.client = parser.next_client(last);
  keys.mask_key = parser.reader().block<32>();
  keys.share_key = parser.reader().block<32>();
  keys.self_seed = parser.reader().block<32>();
  keys.signature = parser.reader().block<64>();
  return keys;
}

}  // namespace

Bytes encode(const Settings& settings, const Keys& message) {
  Writer writer;
  put_header(writer, settings, Phase::keys, Sender::client);
  put_keys(writer, message);
  return writer.take();
}

Bytes encode(const Settings& settings, const Roster& message) {
  Writer writer;
  put_header(writer, settings, Phase::shares, Sender::server);
  writer.integer(static_cast<std::uint32_t>(message.keys.size()));
  for (const auto& keys : message.keys) put_keys(writer, keys);
  return writer.take();
}

Bytes encode(const Settings& settings, const ShareBundle& message) {
  Writer writer;
  put_header(writer, settings, Phase::shares, Sender::client);
  put_client(writer, message.client);
  put_shares(writer, message.shares);
  return writer.take();
}

Bytes encode(const Settings& settings, const ShareDelivery& message) {
  Writer writer;
  put_header(writer, settings, Phase::masked_inputs, Sender::server);
  put_clients(writer, message.sharers);
  put_shares(writer, message.shares);
  return writer.take();
}

Bytes encode(const Settings& settings, const MaskedInput& message) {
  Writer writer;
  put_header(writer, settings, Phase::masked_inputs, Sender::client);
  put_client(writer, message.client);
  writer.bytes(message.signature);
  writer.bytes(message.words);
  return writer.take();
}

Bytes encode(const Settings& settings, const Survivors& message) {
  Writer writer;
  put_header(writer, settings, Phase::survivors, Sender::server);
  put_signatures(writer, message.inputs);
  return writer.take();
}

Bytes encode(const Settings& settings, const ClientSignature& message) {
  Writer writer;
  put_header(writer, settings, Phase::survivors, Sender::client);
  put_signature(writer, message);
  return writer.take();
}

Bytes encode(const Settings& settings, const SignatureList& message) {
  Writer writer;
  put_header(writer, settings, Phase::unmasking, Sender::server);
  put_signatures(writer, message.signatures);
  return writer.take();
}

Bytes encode(const Settings& settings, const Reveal& message) {
  Writer writer;
  put_header(writer, settings, Phase::unmasking, Sender::client);
  put_client(writer, message.client);
  writer.integer(static_cast<std::uint32_t>(message.shares.size()));
  for (const auto& share : message.shares) {
    put_client(writer, share.owner);
    writer.integer(static_cast<std::uint8_t>(share.of_self_seed));
    writer.bytes(share.bytes);
  }
  return writer.take();
}

template <>
Keys decode<Keys>(const Settings& settings, View bytes) {
  Parser parser(settings, bytes, Phase::keys, Sender::client);
  const auto keys = parsed_keys(parser, -1);
  parser.end();
  return keys;
}

template <>
Roster decode<Roster>(const Settings& settings, View bytes) {
  Parser parser(settings, bytes, Phase::shares, Sender::server);
  Roster roster;
  roster.keys.resize(parser.count(164));
  int last = -1;
  for (auto& keys : roster.keys) {
    keys = parsed_keys(parser, last);
    last = keys.client;
  }
  parser.end();
  return roster;
}

template <>
ShareBundle decode<ShareBundle>(const Settings& settings, View bytes) {
  Parser parser(settings, bytes, Phase::shares, Sender::client);
  ShareBundle bundle{.client = parser.client(), .shares = parser.shares()};
  parser.end();
  return bundle;
}

template <>
ShareDelivery decode<ShareDelivery>(const Settings& settings, View bytes) {
  Parser parser(settings, bytes, Phase::masked_inputs, Sender::server);
  ShareDelivery delivery{.sharers = parser.clients(), .shares = parser.shares()};
  parser.end();
  return delivery;
}

template <>
MaskedInput decode<MaskedInput>(const Settings& settings, View bytes) {
  Parser parser(settings, bytes, Phase::masked_inputs, Sender::client);
  MaskedInput input{.client = parser.client(), .signature = parser.reader().block<64>()};
  const auto words = (settings.length + 1) * static_cast<std::size_t>(settings.format.ring_bits / 8);
  if (parser.reader().left() != words) parser.refuse("has another number of values than the round");
  const auto from = parser.reader().bytes(words);
  input.words.assign(from.begin(), from.end());
  return input;
}

template <>
Survivors decode<Survivors>(const Settings& settings, View bytes) {
  Parser parser(settings, bytes, Phase::survivors, Sender::server);
  Survivors survivors{.inputs = parser.signatures()};
  parser.end();
  return survivors;
}

template <>
ClientSignature decode<ClientSignature>(const Settings& settings, View bytes) {
  Parser parser(settings, bytes, Phase::survivors, Sender::client);
  ClientSignature signature{.client = parser.client(), .signature = parser.reader().block<64>()};
  parser.end();
  return signature;
}

template <>
SignatureList decode<SignatureList>(const Settings& settings, View bytes) {
  Parser parser(settings, bytes, Phase::unmasking, Sender::server);
  SignatureList list{.signatures = parser.signatures()};
  parser.end();
  return list;
}

template <>
Reveal decode<Reveal>(const Settings& settings, View bytes) {
  Parser parser(settings, bytes, Phase::unmasking, Sender::client);
  Reveal reveal{.client = parser.client()};
  reveal.shares.resize(parser.count(37));
  int last = -1;
  for (auto& share : reveal.shares) {
    share.owner = last = parser.next_client(last);  // once at most, so never both secrets of one client
    const auto kind = parser.reader().integer<std::uint8_t>();
    if (kind > 1) parser.refuse("has a share of no secret");
    share.of_self_seed = kind == 1;
    share.bytes = parser.reader().block<32>();
  }
  parser.end();
  return reveal;
}

Bytes signed_keys(const Digest& settings, const Keys& keys) {
  Writer writer;
  writer.text("dtrain secure aggregation keys");
  writer.bytes(settings);
  writer.integer(static_cast<std::uint32_t>(keys.client));
  writer.bytes(keys.mask_key);
  writer.bytes(keys.share_key);
  writer.bytes(keys.self_seed);
  return writer.take();
}

Bytes signed_sharers(const Digest& session, const std::vector<int>& sharers) {
  Writer writer;
  writer.text("dtrain secure aggregation sharers");
  writer.bytes(session);
  put_clients(writer, sharers);
  return writer.take();
}

Bytes signed_survivors(const Digest& session, const std::vector<int>& sharers,
                       const std::vector<int>& survivors) {
  Writer writer;
  writer.text("dtrain secure aggregation survivors");
  writer.bytes(session);
  put_clients(writer, sharers);
  put_clients(writer, survivors);
  return writer.take();
}

}  // namespace dtrain::secure_aggregation
