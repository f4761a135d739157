// What a run has released, as its folder keeps it. What is read is accounted for as well.
#include "privacy/ledger.hpp"
#include "privacy/accountant.hpp"
#include "target.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dtrain;
  return fuzz::expect_refusal({ExitCode::usage, ExitCode::checkpoint}, [&] {
    const auto ledger =
        privacy::Ledger::of_lines(std::string(reinterpret_cast<const char*>(data), size), "privacy.ledger");
    privacy::epsilon_of(ledger.mechanisms(), 1e-5, privacy::Accounting::renyi);
    if (privacy::Ledger::of_lines(ledger.lines(), "again").numbers() != ledger.numbers()) std::abort();
  });
}
