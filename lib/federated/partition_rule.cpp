#include "federated/partition_rule.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "core/error.hpp"
#include "core/parse_number.hpp"
#include "core/printable.hpp"

namespace dtrain::federated {
namespace {

constexpr double kLeastConcentration = 1e-3;
constexpr double kMostConcentration = 1e6;  // clients alike

[[noreturn]] void refuse(const std::string& text, std::string_view problem, std::string_view advice) {
  throw usage_error(problem, "--partition " + printable(text), advice);
}

}  // namespace

PartitionRule PartitionRule::parse(const std::string& text) {
  if (text == "iid") return {.kind = Kind::iid};
  if (text == "sites") return {.kind = Kind::sites};
  if (text == "pooled") return {.kind = Kind::pooled};
  const auto equals = text.find('=');
  const auto name = text.substr(0, equals);
  const auto value = equals == std::string::npos ? std::string() : text.substr(equals + 1);
  if (name == "classes") {
    const auto classes = parse_number<int>(value);
    if (!classes || *classes < 1) refuse(text, "a client has at least one class", "write classes=2");
    return {.kind = Kind::classes, .classes = *classes};
  }
  if (name == "dirichlet" || name == "quantity") {
    const auto concentration = parse_number<double>(value);
    if (!concentration || !(*concentration >= kLeastConcentration && *concentration <= kMostConcentration)) {
      refuse(text, fmt::format("a concentration is from {} to {:g}", kLeastConcentration, kMostConcentration),
             fmt::format("write {}=0.5", name));
    }
    return {.kind = name == "dirichlet" ? Kind::dirichlet : Kind::quantity, .concentration = *concentration};
  }
  refuse(text, "there is no such partition", "use iid, dirichlet=A, classes=K, quantity=A, sites or pooled");
}

}  // namespace dtrain::federated
