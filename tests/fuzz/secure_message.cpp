// What clients and the server of a secure sum send each other. The first byte says which message is expected.
#include <algorithm>
#include <iterator>
#include <span>

#include "secure_aggregation/messages.hpp"
#include "target.hpp"

namespace {

using namespace dtrain;
using namespace dtrain::secure_aggregation;

Settings settings() {
  Settings made;
  made.round = 1;
  made.identities.resize(4);
  made.length = 3;
  made.minimum_survivors = 3;
  return made;
}

/// What was read is written with the same bytes: a message has one form only.
template <class Message>
void read(const Settings& settings, View bytes) {
  const auto written = encode(settings, decode<Message>(settings, bytes));
  if (!std::equal(written.begin(), written.end(), bytes.begin(), bytes.end())) std::abort();
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const Settings kSettings = settings();
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  using Read = void (*)(const Settings&, View);
  static constexpr Read kReads[] = {
      read<Keys>,      read<Roster>,          read<ShareBundle>,   read<ShareDelivery>, read<MaskedInput>,
      read<Survivors>, read<ClientSignature>, read<SignatureList>, read<Reveal>};
  return fuzz::expect_refusal(ExitCode::failure,
                              [&] { kReads[data[0] % std::size(kReads)](kSettings, bytes); });
}
