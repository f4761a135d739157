#include "parallel/strategy/federated/secure/secure_releases.hpp"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "core/error.hpp"

namespace dtrain::parallel {

SecureReleases::SecureReleases(const std::string& folder)
    : path_(folder.empty() ? std::string() : folder + "/released_sums") {}

std::int64_t SecureReleases::add(std::int64_t round) {
  ++count_;
  if (path_.empty()) return count_;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  std::ofstream out(path_, std::ios::app);
  out << round << '\n';
  out.close();
  if (out.fail()) throw checkpoint_error("does not take the count of released sums", path_, "free space");
  std::ifstream in(path_);
  count_ = 0;
  for (std::string line; std::getline(in, line);) ++count_;
  return count_;
}

}  // namespace dtrain::parallel
