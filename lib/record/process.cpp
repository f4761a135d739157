#include "record/process.hpp"

#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

namespace dtrain::record {

std::string this_host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::optional<std::int64_t> start_of_process(std::int64_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return std::nullopt;
  const auto name_end = text.rfind(") ");  // the name may hold anything
  if (name_end == std::string::npos) return std::nullopt;
  constexpr int kStartField = 22;  // proc(5); the first one behind the name is 3
  std::istringstream fields(text.substr(name_end + 2));
  std::string state;
  std::string field;
  fields >> state;
  for (int number = 4; number < kStartField; ++number) fields >> field;
  std::int64_t start = 0;
  if (!(fields >> start) || state == "Z" || state == "X") return std::nullopt;
  return start;
}

}  // namespace dtrain::record
