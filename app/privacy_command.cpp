#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>

#include "commands.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "options/command_line.hpp"
#include "privacy/accountant.hpp"
#include "privacy/renyi.hpp"

namespace dtrain::app {
namespace {

struct PrivacyWords {
  double epsilon = 0;
  double delta = 1e-5;
  double noise = -1;
  double rate = 0;
  std::int64_t records = 0;
  std::int64_t batch = 0;
  std::int64_t steps = 0;
  double epochs = 0;
  std::string sampler = "poisson";
  std::string accountant = "rdp";  // as in a training
};

void refuse_if(bool bad, const std::string& problem, const std::string& option, const std::string& advice) {
  if (bad) throw usage_error(problem, option, advice);
}

/// What `part` gives. Its errors name options as a training has them, such as --dp-delta: here as this
/// command.
template <typename Part>
auto in_own_words(Part part) {
  try {
    return part();
  } catch (const Error& error) {
    constexpr std::string_view kOfTraining = "--dp-";
    std::string subject = error.subject();
    if (subject.starts_with(kOfTraining)) subject.replace(0, kOfTraining.size(), "--");
    if (subject == "--target-epsilon") subject = "--epsilon";
    if (subject == "the sampling rate") subject = "--sample-rate";
    throw Error(error.problem(), {.subject = subject, .advice = error.advice(), .code = error.code()});
  }
}

/// Without its noise.
privacy::SampledGaussian mechanism_of(const PrivacyWords& words) {
  const bool by_counts = words.records != 0 || words.batch != 0;
  refuse_if(by_counts && words.rate != 0, "says again what --records and --batch say", "--sample-rate",
            "leave it out, or leave them out");
  refuse_if(!by_counts && words.rate == 0, "how many records take part in a step is not known",
            "dtrain privacy", "give --records N --batch B, or --sample-rate Q");
  refuse_if(by_counts && words.records < 1, fmt::format("{} is no number of records", words.records),
            "--records", "give 1 or more");
  refuse_if(by_counts && (words.batch < 1 || words.batch > words.records),
            fmt::format("{} of {} records cannot be expected in a step", words.batch, words.records),
            "--batch", "give 1 or more, at most --records");
  refuse_if((words.steps != 0) == (words.epochs != 0),
            "how long the training lasts is said twice, or not at all", "dtrain privacy",
            "give --steps or --epochs");
  refuse_if(words.steps < 0, fmt::format("{} is no number of steps", words.steps), "--steps",
            "give 1 or more");
  refuse_if(!std::isfinite(words.epochs) || words.epochs < 0,
            fmt::format("{} is no number of epochs", words.epochs), "--epochs", "give a number above 0");
  privacy::SampledGaussian mechanism{.sampling = privacy::parse_sampling(words.sampler),
                                     .noise_multiplier = 0};
  // As a run rounds: an epoch's last step counts as a whole one.
  const double steps_per_epoch =
      by_counts ? std::ceil(static_cast<double>(words.records) / static_cast<double>(words.batch))
                : std::ceil(1 / words.rate - 1e-9);
  mechanism.rate =
      by_counts ? static_cast<double>(words.batch) / static_cast<double>(words.records) : words.rate;
  if (mechanism.sampling == privacy::Sampling::once_an_epoch)
    mechanism.rate = 1 / std::ceil(steps_per_epoch - 1e-9);
  mechanism.steps = words.steps != 0
                        ? words.steps
                        : static_cast<std::int64_t>(std::ceil(words.epochs * steps_per_epoch - 1e-9));
  mechanism.validate();
  return mechanism;
}

ExitCode tell(const PrivacyWords& words, privacy::SampledGaussian mechanism) {
  const auto accounting = privacy::parse_accounting(words.accountant);
  if (words.noise < 0) {
    mechanism.noise_multiplier = privacy::noise_for(words.epsilon, words.delta, mechanism, accounting);
    fmt::print("noise      {:.4f} times the clip norm keeps to epsilon {:g} at delta {:g}\n",
               mechanism.noise_multiplier, words.epsilon, words.delta);
  } else {
    mechanism.noise_multiplier = words.noise;
  }
  fmt::print("sampler    {}, {:.6g} of the records in a step, {}\n", words.sampler, mechanism.rate,
             counted(mechanism.steps, "step"));
  fmt::print("adjacency  one record more or less\n");
  const privacy::Mechanisms all = {mechanism};
  const double renyi = privacy::renyi_epsilon(all, words.delta);
  fmt::print("epsilon    {:.5f} at delta {:g} (rdp)\n", renyi, words.delta);
  if (!(renyi <= privacy::kMostEpsilon)) {
    fmt::print("           (not counted by pld: above {:g} nothing is protected)\n", privacy::kMostEpsilon);
    return ExitCode::success;
  }
  const double upper = privacy::loss_epsilon(all, words.delta, privacy::Bound::upper);
  if (mechanism.sampling == privacy::Sampling::poisson) {
    fmt::print("           {:.5f} at delta {:g} (pld); certified, it is at least {:.5f}\n", upper,
               words.delta, privacy::loss_epsilon(all, words.delta, privacy::Bound::lower));
  } else {
    fmt::print("           {:.5f} at delta {:g} (pld, as if all records took part once an epoch)\n", upper,
               words.delta);
  }
  return ExitCode::success;
}

void bind(PrivacyWords& given, Parser& parser) {
  parser.add_option("--epsilon", given.epsilon, "print the noise that keeps to it")->option_text("E");
  parser.add_option("--noise", given.noise, "print the epsilon of this noise, in multiples of the clip norm")
      ->option_text("S");
  parser.add_option("--delta", given.delta, "probability that epsilon does not hold, in (0, 1) [1e-5]")
      ->option_text("D");
  parser.add_option("--sample-rate", given.rate, "share of the records in a step")->option_text("Q");
  parser.add_option("--records", given.records, "records in all, with --batch")->option_text("N");
  parser.add_option("--batch", given.batch, "records expected in a step, with --records")->option_text("B");
  parser.add_option("--steps", given.steps, "steps of the training")->option_text("K");
  parser.add_option("--epochs", given.epochs, "or epochs of it")->option_text("E");
  parser
      .add_option("--sampler", given.sampler,
                  "how records are drawn: each in each step by chance, or once in an "
                  "epoch in a random step [poisson]")
      ->option_text("poisson|once");
  parser
      .add_option("--accountant", given.accountant,
                  "what finds the noise: Renyi divergences, or distributions "
                  "of the privacy loss [rdp]")
      ->option_text("rdp|pld");
}

}  // namespace

Task privacy_command(const Words& words, const Environment&) {
  PrivacyWords given;
  Parser parser(
      "privacy",
      "Says what noise a training with differential privacy needs, or what its privacy is. One record "
      "more or less makes a neighbour.");
  bind(given, parser);
  if (const auto help = parse(parser, words)) return print_task(*help);
  const bool has_noise = parser.count("--noise") > 0;
  refuse_if((parser.count("--epsilon") > 0) == has_noise, "one of them is asked for, the other one given",
            "--epsilon and --noise", "give either");
  refuse_if(has_noise && !(std::isfinite(given.noise) && given.noise >= 0),
            fmt::format("{} is no multiple of the clip norm", given.noise), "--noise",
            "give a positive number, such as 1.1");
  const auto mechanism = in_own_words([&given] {
    privacy::require_delta(given.delta);
    privacy::parse_accounting(given.accountant);
    return mechanism_of(given);
  });
  return {.alone = [given, mechanism] { return in_own_words([&] { return tell(given, mechanism); }); },
          .together = {}};
}

}  // namespace dtrain::app
