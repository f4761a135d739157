#pragma once

#include <functional>
#include <vector>

#include "parallel/strategy/federated/client_models.hpp"
#include "record/results_writer.hpp"
#include "train/loop/site_scores.hpp"

namespace dtrain::train {

/// What a federated run's models come to for each client, by test samples: where clients are sites those of
/// its rows, else all, each class counting as often as among the client's training samples.
/// `clients`: what described_clients() says. `scores`: of the agreed model, SplitScores::agree() included; of
/// another one afterwards. `own`: the clients' own models, which count in place of the agreed one; may be
/// null: as they were after `round`. `evaluate` fills `scores` anew with the model as it is. Collective where
/// `own` is there.
std::vector<SiteScore> scores_of_clients(const record::Clients& clients, SplitScores& scores,
                                         parallel::ClientModels* own, std::int64_t round,
                                         const std::function<void()>& evaluate);

}  // namespace dtrain::train
