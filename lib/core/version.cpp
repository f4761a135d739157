#include "core/version.hpp"

namespace dtrain {

std::string_view version() { return DTRAIN_VERSION; }

}  // namespace dtrain
