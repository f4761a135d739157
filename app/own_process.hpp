#pragma once

#include <functional>

#include "core/error.hpp"

namespace dtrain::app {

/// Runs `work`, which returns an exit code and throws nothing, in a process of its own, and returns what it
/// returned.
///
/// For files from elsewhere: HDF5 1.10 reads beyond its buffers in some damaged ones (docs/security.md), and
/// no caller can prevent it. Where a fault ends that process, this throws Error(`damaged`) with the signal;
/// nothing but the work is lost. The work ends with its caller, and a signal that someone sends it ends the
/// caller as well. Call it before there are threads.
int in_own_process(const ErrorContext& damaged, const std::function<int()>& work);

/// The exit code of a process that would end with `code`, once all that it has printed is written: where that
/// goes to a file and fails, as on a full disk, this says so, and success becomes failure.
int after_output(int code);

}  // namespace dtrain::app
