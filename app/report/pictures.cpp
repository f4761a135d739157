#include "report/pictures.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "core/outside.hpp"
#include "record/run_reader.hpp"
#include "run/run_contents.hpp"

namespace dtrain::app {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInstall = "install one with jobs/setup.sh --with-tools, or name it in DTRAIN_PYTHON";

/// -I and this: nothing of the user's environment or the current folder is imported in the package's place.
constexpr const char* kProgram =
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from dtrain_plots.command import main; "
    "main(sys.argv[1:])";

/// Throws Error where the folder that is to hold `path` is not there.
void require_parent(const fs::path& path, const std::string& option) {
  std::error_code ignored;
  const fs::path parent = fs::absolute(path).parent_path();
  if (fs::is_directory(parent, ignored)) return;
  throw usage_error(fmt::format("there is no folder {}", parent.string()), option + " " + path.string(),
                    "make it, or name another place");
}

void check_places(const PictureOptions& options) {
  std::error_code ignored;
  if (!options.html.empty()) {
    require_parent(options.html, "--html");
    if (fs::is_directory(options.html, ignored))
      throw usage_error("is a folder", "--html " + options.html, "name a file, such as page.html");
    require_not_kept("--html", options.html);
  }
  if (!options.plots.empty()) {
    const auto folder = fs::path(options.plots).lexically_normal();
    require_parent(folder.has_filename() ? folder : folder.parent_path(), "--plots");
    if (fs::exists(options.plots, ignored) && !fs::is_directory(options.plots, ignored))
      throw usage_error("is not a folder", "--plots " + options.plots, "name a folder for the pictures");
  }
}

/// The process that `words` start, once it has ended. Throws Error.
int wait_for(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, argv[0], nullptr, nullptr, argv.data(), environ);
  if (error != 0) {
    throw usage_error(fmt::format("pictures need Python, which cannot be started ({})", std::strerror(error)),
                      words.front(), kInstall);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    require(errno == EINTR, fmt::format("cannot be waited for ({})", std::strerror(errno)),
            {.subject = words.front()});
  }
  return status;
}

}  // namespace

std::string python_of(const std::string& named) {
  if (!named.empty()) return named;
  const std::string installed = DTRAIN_PYTHON;
  return ::access(installed.c_str(), X_OK) == 0 ? installed : "python3";
}

std::string packages_folder() {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path().parent_path() / "share" / "dtrain").string();
}

ExitCode draw_pictures(h5::Library& library, const std::vector<std::string>& folders,
                       const PictureOptions& options) {
  check_places(options);
  require(fs::is_directory(fs::path(options.packages) / "dtrain_plots"),
          "the part of dtrain that draws is not there",
          {.subject = options.packages + "/dtrain_plots",
           .advice = "install dtrain whole, with cmake --install",
           .code = ExitCode::usage});
  std::vector<std::string> words = {options.python, "-I", "-B",     "-W",
                                    "ignore",       "-c", kProgram, options.packages};
  for (const std::string& folder : folders) {
    const ErrorContext damaged{
        .subject = folder, .advice = "take another copy of the run", .code = ExitCode::data};
    const auto run = understand_from_outside(
        damaged, [&] { return record::read_run(library, folder, record::Detail::epochs); });
    words.push_back(fmt::format("--status={}", record::status_name(run.status)));
  }
  if (!options.html.empty()) words.push_back("--html=" + options.html);
  if (!options.plots.empty()) words.push_back("--plots=" + options.plots);
  words.emplace_back("--");
  for (const std::string& folder : folders) words.push_back(folder);
  std::cout.flush();
  const int status = wait_for(words);
  require(WIFEXITED(status), fmt::format("was ended by signal {}", WTERMSIG(status)),
          {.subject = options.python, .advice = "draw fewer runs at once, or free memory"});
  const int code = WEXITSTATUS(status);
  const bool known =
      code == 0 || code == static_cast<int>(ExitCode::usage) || code == static_cast<int>(ExitCode::data);
  return known ? static_cast<ExitCode>(code) : ExitCode::failure;
}

}  // namespace dtrain::app
