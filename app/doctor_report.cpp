#include "doctor_report.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "comm/watch/roll_call.hpp"
#include "core/counted.hpp"

namespace dtrain::app {
namespace {

constexpr double kComing_s = 30;  // for each rank; a file system has 20 s to answer

const char* mark_of(doctor::Level level) {
  switch (level) {
    case doctor::Level::problem:
      return "PROBLEM";
    case doctor::Level::note:
      return "note";
    case doctor::Level::good:
      return "ok";
  }
  return "";
}

std::string count(int number, const char* thing) {
  return number == 0 ? fmt::format("no {}s", thing) : counted(number, thing);
}

}  // namespace

DoctorReport::DoctorReport(const comm::Communicator& world, const topology::Cluster& cluster, Speaker speaker)
    : world_(world), cluster_(cluster), speaks_(speaker == Speaker::yes && world.rank() == 0) {}

void DoctorReport::add(const std::vector<doctor::Finding>& findings) {
  for (const auto& finding : findings) add(finding);
}

bool DoctorReport::gather(std::vector<doctor::Finding> mine, doctor::Asked asked) {
  const bool speaks_for_node = cluster_.ranks[static_cast<std::size_t>(world_.rank())].local_rank == 0;
  if (asked == doctor::Asked::nodes && !speaks_for_node) mine.clear();
  comm::roll_call(world_, cluster_, kComing_s);
  std::vector<std::vector<doctor::Finding>> by_rank;
  for (const auto& text : world_.all_gather(doctor::to_text(mine)))
    by_rank.push_back(doctor::from_text(text));
  const auto merged = doctor::merge(by_rank, cluster_, asked);
  for (const auto& shared : merged) print(shared);
  return !merged.empty();
}

void DoctorReport::print(const doctor::SharedFinding& shared) {
  const auto& [finding, where] = shared;
  problems_ += finding.level == doctor::Level::problem ? 1 : 0;
  notes_ += finding.level == doctor::Level::note ? 1 : 0;
  if (!speaks_) return;
  std::string text = fmt::format("{:<8} {:<14} {}{}{}\n", mark_of(finding.level), finding.what, where,
                                 where.empty() ? "" : ": ", finding.text);
  if (!finding.remedy.empty()) text += fmt::format("{:<23} -> {}\n", "", finding.remedy);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

ExitCode DoctorReport::sum_up() const {
  if (speaks_) fmt::print("{}, {}\n", count(problems_, "problem"), count(notes_, "note"));
  return problems_ == 0 ? ExitCode::success : ExitCode::failure;
}

}  // namespace dtrain::app
