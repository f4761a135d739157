#pragma once

#include <functional>
#include <string_view>
#include <utility>

#include "comm/operation.hpp"

namespace dtrain::parallel {

/// Is complete once it has been looked at so often, and `ends`, if there is one, says so as well.
class LateOperation final : public comm::Operation {
 public:
  explicit LateOperation(int looks, std::function<bool()> ends = {})
      : looks_(looks), ends_(std::move(ends)) {}
  bool advance() override { return --looks_ <= 0 && (!ends_ || ends_()); }
  std::string_view name() const override { return "late"; }

 private:
  int looks_;
  std::function<bool()> ends_;
};

}  // namespace dtrain::parallel
