#include "privacy/ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/error.hpp"

namespace dtrain::privacy {
namespace {

bool alike(const SampledGaussian& one, const SampledGaussian& other) {
  return one.sampling == other.sampling && one.noise_multiplier == other.noise_multiplier &&
         one.rate == other.rate;
}

/// `source`: for messages.
SampledGaussian entry_of(std::span<const double> fields, const std::string& source) {
  const auto whole = [](double value, double most) {
    return value >= 0 && value <= most && value == std::floor(value);
  };
  require(whole(fields[0], 1) && std::isfinite(fields[1]) && fields[1] >= 0 && fields[2] > 0 &&
              fields[2] <= 1 && fields[3] > 0 && whole(fields[3], static_cast<double>(kMostSteps)),
          "has an entry that is no mechanism",
          {.subject = source, .advice = "take an older checkpoint", .code = ExitCode::checkpoint});
  return {.sampling = static_cast<Sampling>(static_cast<int>(fields[0])),
          .noise_multiplier = fields[1],
          .rate = fields[2],
          .steps = static_cast<std::int64_t>(fields[3])};
}

constexpr const char* kFirstLine = "dtrain.privacy 1";

}  // namespace

void Ledger::add_steps(const SampledGaussian& mechanism, std::int64_t count) {
  if (count > 0) entry_like(mechanism).steps += count;
}

std::int64_t Ledger::steps() const {
  std::int64_t all = 0;
  for (const auto& entry : entries_) all += entry.steps;
  return all;
}

std::vector<double> Ledger::numbers() const {
  std::vector<double> all(kMostEntries * kFields, 0.0);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto& entry = entries_[i];
    const auto fields = std::span(all).subspan(i * kFields, kFields);
    fields[0] = static_cast<double>(entry.sampling);
    fields[1] = entry.noise_multiplier;
    fields[2] = entry.rate;
    fields[3] = static_cast<double>(entry.steps);
  }
  return all;
}

Ledger Ledger::of_numbers(std::span<const double> numbers) {
  const std::string source = "the checkpoint's ledger of privacy";
  require(numbers.size() == kMostEntries * kFields, "has another size",
          {.subject = source, .advice = "take an older checkpoint", .code = ExitCode::checkpoint});
  Ledger ledger;
  for (std::size_t i = 0; i < kMostEntries; ++i) {
    const auto fields = numbers.subspan(i * kFields, kFields);
    if (fields[3] == 0) break;
    ledger.entries_.push_back(entry_of(fields, source));
  }
  return ledger;
}

std::string Ledger::lines(const std::string& unit) const {
  std::string text = fmt::format("{}\n", kFirstLine);
  if (!unit.empty()) text += fmt::format("unit {}\n", unit);
  for (const auto& entry : entries_) {
    text += fmt::format("{} {} {} {}\n", static_cast<int>(entry.sampling), entry.noise_multiplier, entry.rate,
                        entry.steps);
  }
  return text + "end\n";
}

Ledger Ledger::of_lines(const std::string& text, const std::string& file, const std::string& unit) {
  const ErrorContext damaged{.subject = file,
                             .advice = "restore it: without it the run does not know what it has released",
                             .code = ExitCode::checkpoint};
  std::istringstream lines(text);
  std::string line;
  require(std::getline(lines, line) && line == kFirstLine, "is no ledger of privacy", damaged);
  Ledger ledger;
  std::string found;
  const auto require_unit = [&] {
    require(found == unit,
            fmt::format("counts what each {} has released, and not each {}", found.empty() ? "record" : found,
                        unit.empty() ? "record" : unit),
            {.subject = file,
             .advice = "go on with the --dp-unit that the run began with",
             .code = ExitCode::checkpoint});
  };
  while (std::getline(lines, line)) {
    if (line.starts_with("unit ") && found.empty()) {
      found = line.substr(5);
      continue;
    }
    if (line == "end") {
      require_unit();
      return ledger;
    }
    std::istringstream words(line);
    std::vector<double> fields(kFields);
    for (auto& field : fields) words >> field;
    std::string more;
    require(!words.fail() && !(words >> more) && ledger.entries_.size() < kMostEntries,
            "is no ledger of privacy", damaged);
    ledger.entries_.push_back(entry_of(fields, file));
  }
  throw Error("is cut off", damaged);
}

SampledGaussian& Ledger::entry_like(const SampledGaussian& mechanism) {
  const auto place =
      std::ranges::find_if(entries_, [&](const auto& entry) { return alike(entry, mechanism); });
  if (place != entries_.end()) return *place;
  require(entries_.size() < kMostEntries,
          fmt::format("has {} different noises and rates already", kMostEntries),
          {.subject = "the ledger of privacy", .advice = "begin a new run"});
  entries_.push_back(mechanism);
  entries_.back().steps = 0;
  return entries_.back();
}

void Ledger::take_larger(const Ledger& other) {
  std::vector<SampledGaussian> made_again;
  for (const auto& entry : other.entries_) {
    auto& own = entry_like(entry);
    const auto more = entry.steps - own.steps;
    if (more <= 0) continue;
    if (entry.sampling == Sampling::once_an_epoch && entry.rate < 1) {
      made_again.push_back(entry);
      made_again.back().rate = 1;
      made_again.back().steps = more / entry.steps_per_epoch() + 2;  // epochs that they touch, at most
    } else {
      own.steps = entry.steps;
    }
  }
  for (const auto& entry : made_again) entry_like(entry).steps += entry.steps;
  std::erase_if(entries_, [](const auto& entry) { return entry.steps == 0; });
}

}  // namespace dtrain::privacy
