#include "comm/faults/injected_fault.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "core/parse_number.hpp"

namespace dtrain::comm {
namespace {

using Kind = InjectedFault::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 12> kKinds = {{{"kill", Kind::kill},
                                                                       {"stop", Kind::stop},
                                                                       {"fail", Kind::fail},
                                                                       {"slow", Kind::slow},
                                                                       {"skip", Kind::skip},
                                                                       {"count", Kind::count},
                                                                       {"dtype", Kind::dtype},
                                                                       {"order", Kind::order},
                                                                       {"nan", Kind::nan},
                                                                       {"drift", Kind::drift},
                                                                       {"disk_full", Kind::disk_full},
                                                                       {"link_down", Kind::link_down}}};

constexpr std::string_view kForm = "write one such as kill:rank=1,phase=backward,step=7";

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

template <typename Number>
Number number_of(const std::string& fault, const std::string& key, const std::string& text) {
  const auto value = parse_number<Number>(text);
  if (!value) {
    throw usage_error(fmt::format("{}={} is not a number", key, text), "--inject " + fault,
                      std::string(kForm));
  }
  return *value;
}

Kind kind_of(const std::string& fault, const std::string& name) {
  const auto place = std::ranges::find(kKinds, name, &std::pair<std::string_view, Kind>::first);
  if (place != kKinds.end()) return place->second;
  std::vector<std::string_view> names;
  for (const auto& [known, kind] : kKinds) names.push_back(known);
  throw usage_error(fmt::format("there is no fault \"{}\"", name), "--inject " + fault,
                    fmt::format("use one of {}", fmt::join(names, ", ")));
}

void check_fault(const InjectedFault& found, const std::string& fault, int world_size) {
  const std::string subject = "--inject " + fault;
  const auto& phases = InjectedFault::phases();
  if (found.rank < 0 || found.rank >= world_size) {
    throw usage_error(fmt::format("there is no rank {}", found.rank), subject,
                      fmt::format("use 0 to {}", world_size - 1));
  }
  if (std::ranges::find(phases, found.phase) == phases.end()) {
    throw usage_error(fmt::format("there is no phase \"{}\"", found.phase), subject,
                      fmt::format("use one of {}", fmt::join(phases, ", ")));
  }
  if (found.step < 1) throw usage_error("steps count from 1", subject, "use step=1 or more");
  if (!(found.seconds >= 0))
    throw usage_error("time does not run backwards", subject, "use seconds=0 or more");
  if (!(found.factor > 1)) throw usage_error("would not be slower", subject, "use a factor above 1");
}

InjectedFault parse_fault(const std::string& fault, int world_size) {
  const auto colon = std::min(fault.find(':'), fault.size());
  InjectedFault found;
  found.kind = kind_of(fault, fault.substr(0, colon));
  for (const auto& part :
       colon < fault.size() ? parts_of(fault.substr(colon + 1), ',') : std::vector<std::string>()) {
    const auto equals = std::min(part.find('='), part.size());
    const auto key = part.substr(0, equals);
    const auto value = equals < part.size() ? part.substr(equals + 1) : std::string();
    if (key == "rank") {
      found.rank = number_of<int>(fault, key, value);
    } else if (key == "phase") {
      found.phase = value;
    } else if (key == "step") {
      found.step = number_of<std::int64_t>(fault, key, value);
    } else if (key == "factor") {
      found.factor = number_of<double>(fault, key, value);
    } else if (key == "seconds") {
      found.seconds = number_of<double>(fault, key, value);
    } else {
      throw usage_error(fmt::format("\"{}\" is not rank, phase, step, factor or seconds", key),
                        "--inject " + fault, std::string(kForm));
    }
  }
  check_fault(found, fault, world_size);
  return found;
}

}  // namespace

const std::vector<std::string>& InjectedFault::phases() {
  static const std::vector<std::string> kPhases = {"forward",   "backward",   "all_reduce",
                                                   "optimizer", "evaluation", "checkpoint",
                                                   "test",      "shutdown",   "recovery"};
  return kPhases;
}

std::vector<InjectedFault> parse_faults(const std::string& text, int world_size) {
  std::vector<InjectedFault> faults;
  if (text.empty()) return faults;
  for (const auto& fault : parts_of(text, ';')) faults.push_back(parse_fault(fault, world_size));
  return faults;
}

}  // namespace dtrain::comm
