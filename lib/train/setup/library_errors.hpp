#pragma once

#include <exception>
#include <string>

namespace dtrain::train {

/// What its reader is told of an error: of LibTorch's the sentence without the calls that led there, and
/// where a device has no room for what it was asked for, what can be done.
std::string words_of(const std::exception& error);

}  // namespace dtrain::train
