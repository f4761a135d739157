#include "comm/group_arguments.hpp"

#include <fmt/core.h>

#include <string>

#include "core/error.hpp"
#include "core/slice.hpp"

namespace dtrain::comm {
namespace {

ErrorContext context(const Group& group, std::string_view operation, std::string advice) {
  return {.subject = fmt::format("{} in group {}", operation, group.name()), .advice = std::move(advice)};
}

}  // namespace

void check_arguments(const Group& group, std::string_view operation, const Buffer& values) {
  if (values.data != nullptr || values.count == 0) return;
  throw Error(fmt::format("{} elements but no memory", values.count),
              context(group, operation, "allocate the buffer"));
}

void check_arguments(const Group& group, std::string_view operation, const Buffer& input,
                     const Buffer& output) {
  check_arguments(group, operation, input);
  check_arguments(group, operation, output);
  if (input.type == output.type) return;
  throw Error(fmt::format("input is {} but output is {}", name_of(input.type), name_of(output.type)),
              context(group, operation, "use one type"));
}

void require_part(const Group& group, std::string_view operation, const Buffer& whole, const Buffer& part) {
  const Range mine = part_of(static_cast<std::int64_t>(whole.count), group.rank(), group.size());
  if (static_cast<std::int64_t>(part.count) == mine.size()) return;
  throw Error(fmt::format("rank {}'s part of {} elements is {}, not {}", group.rank(), whole.count,
                          mine.size(), part.count),
              context(group, operation, "cut with part_of"));
}

void require_blocks(const Group& group, const Buffer& input, const Buffer& output) {
  if (input.count == output.count && input.count % static_cast<std::size_t>(group.size()) == 0) return;
  throw Error(fmt::format("{} elements in and {} out cannot be cut into {} equal blocks", input.count,
                          output.count, group.size()),
              context(group, "all_to_all", "pass a multiple of the group's size, the same in and out"));
}

void require_peer(const Group& group, std::string_view operation, int peer) {
  if (peer >= 0 && peer < group.size()) return;
  throw Error(fmt::format("there is no rank {} among {}", peer, group.size()),
              context(group, operation, "name a rank of the group"));
}

std::vector<Buffer> parts_of(const Buffer& whole, int parts) {
  std::vector<Buffer> result;
  for (int index = 0; index < parts; ++index) {
    const Range range = part_of(static_cast<std::int64_t>(whole.count), index, parts);
    result.push_back(
        whole.part(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size())));
  }
  return result;
}

}  // namespace dtrain::comm
