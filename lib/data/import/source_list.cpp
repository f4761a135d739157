#include "data/import/source_list.hpp"

#include "core/sha256.hpp"
#include "data/import/archive.hpp"

namespace dtrain::data {
namespace {

constexpr std::size_t kMostNamed = 1000;

}  // namespace

std::vector<SourceInfo> source_list(const std::filesystem::path& from,
                                    const std::unordered_map<std::string, std::string>& known) {
  std::vector<SourceInfo> sources;
  for (const auto& file : files_on_disk(from)) {
    const bool itself = file == from;
    const auto hash = known.find(file.native());
    sources.push_back({(itself ? file.filename() : file.lexically_relative(from)).generic_string(),
                       hash != known.end() ? hash->second : sha256_of_file(file, ExitCode::data)});
  }
  if (sources.size() <= kMostNamed) return sources;
  std::string list;
  for (const SourceInfo& source : sources) list += source.sha256 + "  " + source.file + "\n";
  const std::string folder = std::filesystem::absolute(from).lexically_normal().filename().string();
  return {{folder + "/", sha256_of(list)}};
}

}  // namespace dtrain::data
