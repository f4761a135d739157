#include "comm/collectives/comparison.hpp"

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "comm/mpi/transfer.hpp"

namespace dtrain::comm {
namespace {

std::string_view name_of_kind(std::uint8_t kind) {
  switch (static_cast<OperationKind>(kind)) {
    case OperationKind::all_reduce:
      return "all_reduce";
    case OperationKind::reduce_scatter:
      return "reduce_scatter";
    case OperationKind::all_gather:
      return "all_gather";
    case OperationKind::all_to_all:
      return "all_to_all";
    case OperationKind::broadcast:
      return "broadcast";
    case OperationKind::barrier:
      return "barrier";
    case OperationKind::reduce_parts:
      return "reduce_parts";
  }
  return "nothing known";
}

std::string sentence(const Descriptor& d) {
  const auto kind = static_cast<OperationKind>(d.operation);
  std::string text(name_of_kind(d.operation));
  if (kind == OperationKind::barrier) return text;
  text += fmt::format(" of {} {}", d.count, name_of(static_cast<DataType>(d.type)));
  if (kind == OperationKind::all_reduce || kind == OperationKind::reduce_scatter) {
    text += fmt::format(", {}, {}", name_of(static_cast<ReduceOp>(d.op)),
                        name_of(static_cast<Algorithm>(d.detail)));
  }
  if (kind == OperationKind::all_reduce && d.root != 0) text += fmt::format(", encoding {}", d.root);
  if (kind == OperationKind::broadcast) text += fmt::format(" from group rank {}", d.root);
  return text;
}

/// What a rank enters goes to the next, around the end.
class Comparison final : public Step {
 public:
  Comparison(Party party, const Descriptor& mine, const Label& where)
      : party_(std::move(party)), mine_(mine), where_(where) {}

  bool advance() override {
    if (!begun_) {
      receive_ = Transfer::receive(party_.channel, &theirs_, sizeof theirs_, party_.at(-1));
      send_ = Transfer::send(party_.channel, &mine_, sizeof mine_, party_.at(1));
      begun_ = true;
    }
    if (!receive_.test() || !send_.test()) return false;
    if (!agree(mine_, theirs_)) throw mismatch(name_of(0), mine_, name_of(-1), theirs_, where_);
    return true;
  }

 private:
  int name_of(int distance) const {
    return where_.members->at(static_cast<std::size_t>(party_.at(distance)));
  }

  Party party_;
  Descriptor mine_;
  Descriptor theirs_;
  Label where_;
  bool begun_ = false;
  Transfer receive_;
  Transfer send_;
};

}  // namespace

bool agree(const Descriptor& a, const Descriptor& b) {
  return a.operation == b.operation && a.type == b.type && a.op == b.op && a.detail == b.detail &&
         a.root == b.root && a.count == b.count;
}

Error mismatch(int rank, const Descriptor& mine, int other, const Descriptor& theirs, const Label& where) {
  return {
      fmt::format("rank {} calls {} but rank {} calls {}", rank, sentence(mine), other, sentence(theirs)),
      {.subject = where.text(), .advice = "make the same calls in the same order on all ranks of the group"}};
}

std::unique_ptr<Step> make_comparison(Party party, const Descriptor& mine, const Label& where) {
  return std::make_unique<Comparison>(std::move(party), mine, where);
}

}  // namespace dtrain::comm
