#include "models/plugins/load.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>

#include "core/error.hpp"
#include "core/outside.hpp"
#include "core/printable.hpp"
#include "core/regular_file.hpp"
#include "models/plugins/additions.hpp"
#include "models/plugins/plugin.hpp"

namespace dtrain::models {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 31;
constexpr std::size_t kLongestStamp = 200;
constexpr const char* kBuild = "build it against this dtrain, as docs/own-models.md says";

/// A name without a folder would be looked for elsewhere than here.
std::string path_of(const std::string& file) {
  std::error_code problem;
  const auto path = std::filesystem::canonical(file, problem);
  require(!problem, "cannot be opened: " + problem.message(),
          {.subject = "--plugin " + file, .advice = "name a library that is there", .code = ExitCode::usage});
  return path.string();
}

/// Whether all that the loader would map is in the file: it ends the process where a file was cut off.
bool is_whole(std::string_view bytes) {
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (!bytes.starts_with(ELFMAG) || header.e_ident[EI_CLASS] != ELFCLASS64) return false;
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    if (header.e_phoff > bytes.size() || bytes.size() - header.e_phoff < (i + 1) * sizeof part) return false;
    std::memcpy(&part, bytes.data() + header.e_phoff + i * sizeof part, sizeof part);
    if (part.p_offset > bytes.size() || bytes.size() - part.p_offset < part.p_filesz) return false;
  }
  return true;
}

void check_stamp(const std::string& file, const std::string& path) {
  const std::string bytes = read_regular_file(path, kMostBytes, ExitCode::usage);
  const auto theirs = stamp_in(bytes);
  require(theirs.has_value(), "is no plug-in: there is no stamp of dtrain in it",
          {.subject = "--plugin " + file,
           .advice = std::string("write DTRAIN_PLUGIN in it, and ") + kBuild,
           .code = ExitCode::usage});
  const std::string ours = stamp_in(DTRAIN_PLUGIN_STAMP).value();
  require(
      *theirs == ours,
      fmt::format("was built for ({}), and this program is ({})", printable(*theirs, kLongestStamp), ours),
      {.subject = "--plugin " + file, .advice = kBuild, .code = ExitCode::usage});
  require(is_whole(bytes), "cannot be opened: it is no library, or a part of it is missing",
          {.subject = "--plugin " + file, .advice = "build it again", .code = ExitCode::usage});
}

/// Of all operators that are registered.
std::set<std::string> all_spaces() {
  std::set<std::string> found;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames())
    found.insert(name.name.substr(0, name.name.find("::")));
  return found;
}

std::set<std::string>& spaces_of_plugins() {
  static std::set<std::string> spaces;
  return spaces;
}

void load(const std::string& file) {
  const std::string path = path_of(file);
  check_stamp(file, path);
  const ErrorContext context{.subject = "--plugin " + file, .advice = kBuild, .code = ExitCode::usage};
  const auto before = all_spaces();
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: operators stay
  if (library == nullptr)
    throw Error(fmt::format("cannot be opened: {}", printable(::dlerror(), 300)), context);
  using Entry = const Plugin* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(library, "dtrain_plugin"));
  require(entry != nullptr, "has no function dtrain_plugin", context);
  Additions more;
  try {
    if (const Plugin* plugin = entry(); plugin->add != nullptr) plugin->add(more);
  } catch (const std::exception& error) {
    throw Error(fmt::format("failed: {}", printable(error.what(), 300)), context);
  }
  add_from_plugin(file, more);
  std::ranges::set_difference(all_spaces(), before,
                              std::inserter(spaces_of_plugins(), spaces_of_plugins().end()));
}

}  // namespace

std::optional<std::string> stamp_in(std::string_view bytes) {
  constexpr std::string_view kBegin = "dtrain-plugin-stamp{";
  const auto begin = bytes.find(kBegin);
  if (begin == std::string_view::npos) return std::nullopt;
  const auto text = bytes.substr(begin + kBegin.size(), kLongestStamp);
  const auto end = text.find('}');
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(text.substr(0, end));
}

void load_plugins(const std::vector<std::string>& files) {
  for (const std::string& file : files) load(file);
}

bool is_space_of_plugin(const std::string& space) { return spaces_of_plugins().contains(space); }

bool is_added_loss(const std::string& name) { return find_added_loss(name) != nullptr; }

}  // namespace dtrain::models
