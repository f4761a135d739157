#include "parallel/gradients/compression/later_compression.hpp"

#include <fmt/format.h>

#include <utility>

namespace dtrain::parallel {

void LaterCompression::begin_step(std::int64_t number, std::int64_t samples) {
  begun_ = number > steps_;
  if (number == steps_ + 1)
    news_ = fmt::format("between nodes, from step {} on; the steps before it travelled in all bits", number);
  if (begun_) later_->begin_step(number, samples);
}

std::string LaterCompression::news() {
  auto news = std::exchange(news_, {});
  return news.empty() ? later_->news() : news;
}

}  // namespace dtrain::parallel
