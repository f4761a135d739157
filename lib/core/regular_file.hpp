#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "core/error.hpp"
#include "core/file_descriptor.hpp"

namespace dtrain {

// What is read must be a regular file: to open a FIFO waits for its writer, a device has no end. Links are
// followed, but for those that another user has laid to a file of this user's.

/// Throws Error with the exit code `code` where something else than a regular file lies at `path`. Nothing
/// there passes: opening it says so.
void require_regular_file(const std::filesystem::path& path, ExitCode code);

/// The same for a file to be written: nothing there, or a regular file. Its folder must be there.
void require_writable_place(const std::filesystem::path& path, ExitCode code);

/// A descriptor to read from, never waiting. Throws Error with the exit code `code`.
FileDescriptor open_regular_file(const std::filesystem::path& path, ExitCode code);

/// All of a text of at most `most_bytes`. Throws Error with the exit code `code`.
std::string read_regular_file(const std::filesystem::path& path, std::size_t most_bytes, ExitCode code);

}  // namespace dtrain
