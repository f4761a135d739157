#include "train/loop/client_scores.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace dtrain::train {

std::vector<SiteScore> scores_of_clients(const record::Clients& clients, SplitScores& scores,
                                         parallel::ClientModels* own, std::int64_t round,
                                         const std::function<void()>& evaluate) {
  const std::size_t count = clients.rows.size();
  const std::size_t classes = count > 0 ? clients.classes.size() / count : 0;
  const std::span<const std::int64_t> histogram(clients.classes);
  std::vector<SiteScore> found;
  for (std::size_t client = 0; client < count; ++client) {
    if (own != nullptr) {
      own->show(static_cast<int>(client), round);
      scores.clear();
      evaluate();
    }
    found.push_back(clients.named ? scores.of_site(static_cast<int>(client))
                                  : scores.with_classes(histogram.subspan(client * classes, classes)));
  }
  return found;
}

}  // namespace dtrain::train
