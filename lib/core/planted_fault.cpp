#include "core/planted_fault.hpp"

namespace dtrain {

bool planted(Fault /*fault*/) { return false; }

}  // namespace dtrain
