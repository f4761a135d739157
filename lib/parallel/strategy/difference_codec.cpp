#include "parallel/strategy/difference_codec.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace dtrain::parallel {

ExchangeType parse_exchange_type(std::string_view name) {
  if (name == "full") return ExchangeType::full;
  if (name == "bfloat16") return ExchangeType::bfloat16;
  if (name == "int8") return ExchangeType::int8;
  throw usage_error(fmt::format("\"{}\" is not a value it takes", name), "--exchange-type",
                    "use one of full, bfloat16, int8");
}

DifferenceCodec::DifferenceCodec(ExchangeType type)
    : blocks_(type == ExchangeType::bfloat16 ? WireType::bfloat16 : WireType::int8) {}

}  // namespace dtrain::parallel
