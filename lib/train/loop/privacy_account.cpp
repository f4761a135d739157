#include "train/loop/privacy_account.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "core/counted.hpp"
#include "core/error.hpp"

namespace dtrain::train {

void PrivacyAccount::begin(bool expected, bool standardised) {
  if (!is_private()) return;
  take_ledger(expected);
  parts_.outputs.event("privacy", parts_.training->in_words());
  if (standardised)
    parts_.outputs.event(
        "privacy", "not covered: mean and deviation of the records, which staging computed without noise");
}

void PrivacyAccount::take_ledger(bool expected) {
  const auto earlier = ledger_in(parts_.folder);
  require(earlier || !expected, "lacks its ledger of privacy, so that what it has released is not known",
          {.subject = parts_.folder + "/privacy.ledger",
           .advice = "restore the file, or begin a run with another --name",
           .code = ExitCode::checkpoint});
  if (!earlier) return;
  const auto more = parts_.training->take_ledger(*earlier, parts_.folder + "/privacy.ledger");
  if (more == 0 || !parts_.speaks) return;
  parts_.outputs.event("privacy", fmt::format("{} made after the checkpoint count, and count again when they "
                                              "are made again",
                                              counted(more, "step")));
}

void PrivacyAccount::after_step() {
  if (is_private()) parts_.outputs.ledger(parts_.training->ledger());
}

void PrivacyAccount::after_epoch(int epoch, std::int64_t step) {
  if (!is_private() || !parts_.speaks) return;
  const auto terms = parts_.training->terms();
  const record::PrivacyRow row{.epoch = epoch,
                               .step = step,
                               .releases = parts_.training->releases(),
                               .epsilon = parts_.training->epsilon(),
                               .delta = terms.delta,
                               .noise_multiplier = terms.noise,
                               .clip_norm = terms.clip,
                               .sampling_rate = terms.rate,
                               .unit = terms.unit};
  parts_.outputs.privacy(row);
  parts_.tell("privacy", fmt::format("epsilon {:.4f} at delta {:g} after {}", row.epsilon, row.delta,
                                     counted(row.releases, "step")));
}

void PrivacyAccount::finish() {
  if (!is_private() || !parts_.speaks) return;
  const double delta = parts_.training->terms().delta;
  std::vector<record::ClientPrivacyRow> rows;
  for (const auto& client : parts_.training->by_client()) {
    rows.push_back({.client = client.client,
                    .local_steps = client.steps,
                    .sampling_rate = client.rate,
                    .epsilon = client.epsilon,
                    .delta = delta});
  }
  parts_.outputs.client_privacy(std::move(rows));
}

std::string PrivacyAccount::why_spent(std::int64_t step) const {
  const auto terms = parts_.training->terms();
  return fmt::format("after step {}: another one would release more than epsilon {:g} at delta {:g}", step,
                     terms.target_epsilon, terms.delta);
}

}  // namespace dtrain::train
