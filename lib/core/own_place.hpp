#pragma once

#include <sys/types.h>

#include <filesystem>

#include "core/error.hpp"

namespace dtrain {

// Other users of the machine may write to the folders above a file of ours, such as /tmp. What they have laid
// there before us, a link, a FIFO or a folder of the right name, must not be written through.

/// This user, the administrator, or an owner that cannot act here: one that this user namespace does not map.
bool is_trusted_owner(uid_t owner);

/// Throws Error in words of `context` where another user may replace what is written below `folder`: the
/// folder (or the link of that name) is another user's, and either is open to all or lies in one that is. A
/// folder that is not there passes, as does one of another user in a place of that user's.
void require_own_folder(const std::filesystem::path& folder, const ErrorContext& context);

/// The file that is to be written at `path` becomes one of this user's, to which no other name leads. A file
/// like that is left as it is; a link, a FIFO or a file of another user is removed, not written through, and
/// an empty file takes its place. Throws Error with the exit code `code` where it cannot be removed.
void claim_file(const std::filesystem::path& path, ExitCode code);

/// `path`, or `path-2`, `path-3`, ...: the first under which nothing lies, no link either. For what is set
/// aside.
std::filesystem::path free_name(const std::filesystem::path& path);

}  // namespace dtrain
