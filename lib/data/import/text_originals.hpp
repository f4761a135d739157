#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/import/originals.hpp"
#include "data/import/split_plan.hpp"
#include "data/text/text_options.hpp"

namespace dtrain::data {

/// Documents, each of a class.
struct ClassifiedTexts {
  std::vector<std::string> texts;
  std::vector<std::int64_t> targets;
};

/// Sentences and their translations.
struct TextPairs {
  std::vector<std::string> sources;
  std::vector<std::string> targets;
};

// From texts by split (train among them) to the arrays of the task and its tokeniser. Vocabularies are
// learned from the samples of train that plan_splits, called with the same `rule`, leaves in train. Texts
// must be UTF-8 and not blank: the readers of the formats check that, because they know the files.

/// Task text_classification.
Originals classified_originals(const std::map<std::string, ClassifiedTexts>& splits,
                               std::vector<std::string> classes, const TextOptions& options,
                               const SplitRule& rule);

/// Task translation: start and end around each sentence, a vocabulary for each language.
Originals translation_originals(const std::map<std::string, TextPairs>& splits, const TextOptions& options,
                                const SplitRule& rule);

/// Task language_modelling: one text per split. Without a validation split train's last tenth, counted in
/// characters, becomes it. Throws data_error when a split is shorter than a block.
Originals running_originals(std::map<std::string, std::string> splits, const TextOptions& options,
                            const std::string& subject);

}  // namespace dtrain::data
