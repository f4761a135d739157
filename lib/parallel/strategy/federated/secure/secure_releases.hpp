#pragma once

#include <cstdint>
#include <string>

namespace dtrain::parallel {

/// How many sums with noise the server has learnt in a run: also those of rounds that were repeated after a
/// loss or a resume, with new noise. Each is a line in a file of the run, which is on the disk before the sum
/// is given to any rank.
class SecureReleases {
 public:
  /// `folder`: of the run's clients; empty: nothing outlives the object.
  explicit SecureReleases(const std::string& folder);

  /// One more. Returns their number. Throws Error (exit code 4) where the disk does not take it.
  std::int64_t add(std::int64_t round);

 private:
  std::string path_;
  std::int64_t count_ = 0;
};

}  // namespace dtrain::parallel
