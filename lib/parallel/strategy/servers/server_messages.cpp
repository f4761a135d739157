#include "parallel/strategy/servers/server_messages.hpp"

#include "core/error.hpp"

namespace dtrain::parallel {

ServerMessage::Fields ServerMessage::fields() const {
  return {static_cast<double>(kind),
          static_cast<double>(unit.step),
          static_cast<double>(unit.micro_batch),
          static_cast<double>(version),
          scale,
          rate,
          sent_s};
}

ServerMessage ServerMessage::from(const Fields& fields) {
  return {.kind = static_cast<Kind>(static_cast<int>(fields[0])),
          .unit = {static_cast<std::int64_t>(fields[1]), static_cast<int>(fields[2])},
          .version = static_cast<std::int64_t>(fields[3]),
          .scale = fields[4],
          .rate = fields[5],
          .sent_s = fields[6]};
}

ServerAnswer::Fields ServerAnswer::fields() const {
  return {static_cast<double>(unit.step), static_cast<double>(unit.micro_batch), static_cast<double>(version),
          sent_s};
}

ServerAnswer ServerAnswer::from(const Fields& fields) {
  return {.unit = {static_cast<std::int64_t>(fields[0]), static_cast<int>(fields[1])},
          .version = static_cast<std::int64_t>(fields[2]),
          .sent_s = fields[3]};
}

ServerLines::ServerLines(comm::Group& data, comm::Group& other) : data_(data), other_(other) {
  for (int rank = 0; rank < data.size(); ++rank) {
    int there = 0;
    while (there < other.size() && other.world_rank_of(there) != data.world_rank_of(rank)) ++there;
    require(there < other.size(), "a data rank is missing in the group of answers",
            {.subject = other.name(), .advice = "report this as a bug"});
    in_other_.push_back(there);
  }
}

}  // namespace dtrain::parallel
