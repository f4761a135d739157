#pragma once

#include "kernels/philox.hpp"

namespace dtrain::privacy {

/// What random numbers of this folder are for: no other purpose has this number.
inline constexpr auto kPrivacyPurpose = static_cast<kernels::Purpose>(8);
static_assert(static_cast<std::uint32_t>(kernels::Purpose::compression) < 8);

}  // namespace dtrain::privacy
