#include "state/dtypes.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"

namespace dtrain::state {
namespace {

struct Dtype {
  const char* name;
  at::ScalarType type;
  bool is_saved;  // the others are read from files of other programs, and converted
};

constexpr std::array kDtypes = {Dtype{"float64", at::kDouble, true}, Dtype{"float32", at::kFloat, true},
                                Dtype{"float16", at::kHalf, false},  Dtype{"bfloat16", at::kBFloat16, false},
                                Dtype{"int64", at::kLong, true},     Dtype{"int32", at::kInt, true},
                                Dtype{"int16", at::kShort, false},   Dtype{"int8", at::kChar, false},
                                Dtype{"uint8", at::kByte, false}};

}  // namespace

std::string dtype_name(at::ScalarType type) {
  const auto* const found = std::ranges::find(kDtypes, type, &Dtype::type);
  if (found != kDtypes.end() && found->is_saved) return found->name;
  throw Error("tensors of this type are not saved", {.subject = c10::toString(type)});
}

at::ScalarType dtype_of(const std::string& name, const std::string& file) {
  const auto* const found = std::ranges::find(kDtypes, name, &Dtype::name);
  if (found != kDtypes.end()) return found->type;
  throw checkpoint_error("holds a tensor of type " + name, file, "save it as float32");
}

}  // namespace dtrain::state
