#include "data/placement/shared_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "core/outside.hpp"
#include "core/shared_failure.hpp"
#include "core/shared_file.hpp"
#include "core/slice.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kSegmentAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kSegmentAlignment - 1) / kSegmentAlignment * kSegmentAlignment;
}

FileTeam file_team(const NodeTeam& team) {
  const bool makes = team.local_rank == 0;
  return {
      .makes = makes,
      .of_maker = [&team, makes](const std::string& mine) { return team.share(makes ? mine : "").front(); },
      .all =
          [&team](bool fine) {
            return std::ranges::all_of(team.share(fine ? "yes" : "no"),
                                       [](const std::string& said) { return said == "yes"; });
          }};
}

/// Throws data_error unless the node has these bytes of shared memory.
void require_memory(bool fine, std::size_t bytes, const std::string& why) {
  require(fine, fmt::format("needs {} MiB of shared memory, which failed: {}", bytes >> 20, why),
          {.subject = "--staging memory",
           .advice = "use --staging none, or give /dev/shm more room",
           .code = ExitCode::data});
}

void fill_part(const Column& column, const NodeTeam& team, std::byte* out) {
  const Range part = part_of(column.rows(), team.local_rank, team.local_size);
  column.read(part.begin, part.size(), out + static_cast<std::size_t>(part.begin) * column.row_bytes());
}

/// Throws on every rank of the node what the first rank with a failure met. Collective over the node.
void throw_on_node(const std::optional<Error>& mine, const NodeTeam& team) {
  if (const auto first = first_failure(team.share(failure_to_text(mine)))) throw Error(*first);
}

}  // namespace

std::vector<std::shared_ptr<const Column>> in_node_memory(
    const std::vector<std::shared_ptr<const Column>>& columns, const NodeTeam& team) {
  std::vector<std::size_t> begins;
  std::size_t total = 0;
  for (const auto& column : columns) {
    begins.push_back(total);
    total +=
        aligned(std::max<std::size_t>(static_cast<std::size_t>(column->rows()) * column->row_bytes(), 1));
  }
  // Every rank reaches each exchange, whatever happens to it in between.
  const FileDescriptor file = open_shared_file(file_team(team));
  require_memory(file.is_open(), total, "its ranks cannot open a file in /dev/shm together");
  // Reserved now: a page that cannot be had later would end the process with SIGBUS.
  throw_on_node(failure_of([&] {
                  if (team.local_rank != 0) return;
                  const int reason = ::posix_fallocate(file.get(), 0, static_cast<off_t>(total));
                  require_memory(reason == 0, total, std::strerror(reason));
                }),
                team);
  const auto memory = std::make_shared<const SharedMapping>(file, total);
  throw_on_node(
      failure_of([&] {
        require_memory(!memory->is_empty(), total, std::strerror(errno));
        understand_from_outside(
            {.subject = "--staging memory", .advice = "stage the dataset again", .code = ExitCode::data},
            [&] {
              for (std::size_t i = 0; i < columns.size(); ++i)
                fill_part(*columns[i], team, memory->data() + begins[i]);
            });
      }),
      team);
  std::vector<std::shared_ptr<const Column>> shared;
  for (std::size_t i = 0; i < columns.size(); ++i)
    shared.push_back(std::make_shared<MemoryColumn>(columns[i]->type(), columns[i]->row_shape(),
                                                    columns[i]->rows(), memory->data() + begins[i], memory));
  return shared;
}

}  // namespace dtrain::data
