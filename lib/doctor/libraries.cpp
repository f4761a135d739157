#include "doctor/libraries.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>
#include <link.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include "comm/mpi/mpi_environment.hpp"

namespace dtrain::doctor {
namespace {

using Version = std::array<int, 3>;

/// The name before the first digit of `Open MPI v5.0.11`, and the numbers behind it.
std::string name_in(const std::string& text) {
  const auto digit = std::ranges::find_if(text, [](unsigned char c) { return std::isdigit(c) != 0; });
  return {text.begin(), digit};
}

Version numbers_in(const std::string& text) {
  Version version{};
  std::sscanf(text.c_str() + name_in(text).size(), "%d.%d.%d", &version[0], &version[1], &version[2]);
  return version;
}

bool fits(const LibraryFacts& facts) {
  if (name_in(facts.built) != name_in(facts.loaded)) return false;
  const Version built = numbers_in(facts.built);
  const Version loaded = numbers_in(facts.loaded);
  switch (facts.match) {
    case Match::exact:
      return built == loaded;
    case Match::same_minor:
      return built[0] == loaded[0] && built[1] == loaded[1];
    case Match::driver:
      return loaded[0] >= built[0];
    case Match::not_older:
      return built[0] == loaded[0] && loaded >= built;
  }
  return false;
}

struct Search {
  std::string_view name;
  std::vector<std::string> found;
};

}  // namespace

std::vector<std::string> loaded_copies(std::string_view name) {
  Search search{.name = name, .found = {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        const std::filesystem::path path = info->dlpi_name;
        const std::string file = path.filename();
        if (!file.starts_with(wanted.name)) return 0;
        const std::string rest = file.substr(wanted.name.size());
        if (!rest.starts_with("_hl") && !rest.starts_with("_cpp")) wanted.found.push_back(path.string());
        return 0;
      },
      &search);
  return search.found;
}

Finding judge_library(const LibraryFacts& facts) {
  if (facts.copies.size() > 1) {
    return problem(
        facts.what,
        fmt::format("{} copies are loaded: {}", facts.copies.size(), fmt::join(facts.copies, " and ")),
        "keep one of them: unset LD_LIBRARY_PATH and LD_PRELOAD");
  }
  const std::string where = facts.copies.empty() ? "linked in" : facts.copies.front();
  if (!fits(facts)) {
    return problem(
        facts.what,
        fmt::format("{} is loaded but dtrain was built with {}  {}", facts.loaded, facts.built, where),
        facts.match == Match::driver
            ? fmt::format(
                  "have a driver installed that is for CUDA {} or newer, or build dtrain with an older CUDA",
                  facts.built)
            : "unset LD_LIBRARY_PATH and LD_PRELOAD, or build dtrain again with the one that is there");
  }
  return good(facts.what, fmt::format("{}  {}", facts.loaded, where));
}

LibraryFacts mpi_facts() {
  const std::string version = comm::MpiEnvironment::library_version();
#ifdef OMPI_MAJOR_VERSION
  const auto built =
      fmt::format("Open MPI v{}.{}.{}", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
#else
  const auto& built = version;
#endif
  // Open MPI says a comma behind its version and more, and marks releases under test: 5.1.0rc1.
  return {.what = "MPI",
          .built = built,
          .loaded = version.substr(0, version.find_first_of(",\n")),
          .copies = loaded_copies("libmpi.so"),
          .match = Match::not_older};
}

LibraryFacts hdf5_facts() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ::H5dont_atexit();  // this is the first call of a run: later h5::Library's would come too late to count
  ::H5get_libversion(&major, &minor, &release);
  return {.what = "HDF5",
          .built = fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE),
          .loaded = fmt::format("{}.{}.{}", major, minor, release),
          .copies = loaded_copies("libhdf5"),
          .match = Match::exact};
}

Finding judge_threads(int provided) {
  if (provided >= MPI_THREAD_MULTIPLE) return good("MPI threads", "all threads of a rank may communicate");
  return problem("MPI threads", "this MPI library allows only one thread to communicate",
                 "use one built with MPI_THREAD_MULTIPLE");
}

Finding judge_recovery(bool has_ulfm, bool switched_on) {
  constexpr const char* kWhat = "recovery";
  if (has_ulfm && switched_on) return good(kWhat, "on: a job goes on without a rank that dies");
  if (has_ulfm) return note(kWhat, "off: a rank that dies ends the job", "start with mpirun --with-ft ulfm");
  return note(kWhat, "off: this MPI has no ULFM, and a rank that dies ends the job",
              "use Open MPI 5 and mpirun --with-ft ulfm");
}

}  // namespace dtrain::doctor
