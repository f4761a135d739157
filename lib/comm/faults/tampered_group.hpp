#pragma once

#include <optional>
#include <utility>

#include "comm/faults/injected_fault.hpp"
#include "comm/passing_group.hpp"

namespace dtrain::comm {

/// Passes everything on, but for one sum in a step.
class TamperedGroup final : public PassingGroup {
 public:
  using PassingGroup::PassingGroup;
  void tamper_with_next(InjectedFault::Kind kind) { kind_ = kind; }

  Handle all_reduce(Buffer values, ReduceOp op, Algorithm algorithm) override {
    return tampers(values) ? Handle() : PassingGroup::all_reduce(values, op, algorithm);
  }
  Handle all_reduce_encoded(Buffer values, Encoding& encoding) override {
    return tampers(values) ? Handle() : PassingGroup::all_reduce_encoded(values, encoding);
  }
  Handle reduce_parts(Buffer values, ReduceOp op, Algorithm algorithm) override {
    return tampers(values) ? Handle() : PassingGroup::reduce_parts(values, op, algorithm);
  }
  Handle all_to_all(Buffer input, Buffer output) override {
    return tampers(input) ? Handle() : PassingGroup::all_to_all(input, output);
  }

 private:
  /// Whether the operation is to be left out; changes what it is about to pass otherwise.
  bool tampers(Buffer& values) {
    using Kind = InjectedFault::Kind;
    const auto kind = std::exchange(kind_, std::nullopt);
    if (kind == Kind::count) --values.count;
    if (kind == Kind::dtype) {
      const bool wide = size_of(values.type) == 8;
      values.type = wide ? DataType::int64 : DataType::int32;
    }
    if (kind == Kind::order) passed_on().barrier().wait();
    return kind == Kind::skip;
  }

  std::optional<InjectedFault::Kind> kind_;
};

}  // namespace dtrain::comm
