#include <iostream>

#include "command_line.hpp"
#include "commands.hpp"
#include "core/outside.hpp"
#include "h5/library.hpp"
#include "report.hpp"

namespace dtrain::app {

Task report_command(const Words& words, const Environment&) {
  ReportOptions options;
  Parser parser("report", "Prints what runs measured: epochs, ranks, where the time went.");
  parser.add_option("RUN", options.runs, "run folders, such as runs/NAME")->required();
  parser.add_flag("--compare", options.compare, "one column per run");
  parser.add_flag("--csv", options.csv, "comma-separated rows");
  parser.add_flag("--follow", options.follow,
                  "wait for the run, and print its epochs and steps until it has ended");
  parser.add_flag("--gather", options.gather,
                  "copy what the ranks of a run that died have left into its results.h5");
  if (const auto help = parse(parser, words)) return print_task(*help);
  return {.alone =
              [options] {
                h5::Library library;
                const ErrorContext context{.subject = options.runs.front(),
                                           .advice = "take another copy of the run",
                                           .code = ExitCode::data};
                understand_from_outside(context, [&] { report(library, options, std::cout); });
                return ExitCode::success;
              },
          .together = {}};
}

}  // namespace dtrain::app
