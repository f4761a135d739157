#pragma once

#include <string>

namespace dtrain::models::exported {

/// Computes the golden batch of a file again, where it has one: inputs, mean loss and each parameter's
/// gradient as PyTorch found them in float64 without dropout (jobs/export_model.py). Returns a line for the
/// log; empty: the file has none. Throws Error (exit code 4), naming what is further off than 1e-5.
std::string check_golden(const std::string& file);

}  // namespace dtrain::models::exported
