#include <iostream>

#include "commands.hpp"
#include "core/outside.hpp"
#include "h5/library.hpp"
#include "options/command_line.hpp"
#include "report/pictures.hpp"
#include "report/report.hpp"

namespace dtrain::app {
namespace {

/// Pictures instead of text.
ExitCode draw(h5::Library& library, const ReportOptions& options, const PictureOptions& pictures) {
  if (options.csv || options.follow || options.gather) {
    throw usage_error("draws, and prints no rows", pictures.html.empty() ? "--plots" : "--html",
                      "leave --csv, --follow and --gather out");
  }
  std::vector<std::string> folders;
  for (const std::string& run : options.runs) folders.push_back(folder_of_run(run));
  return draw_pictures(library, folders, pictures);
}

}  // namespace

Task report_command(const Words& words, const Environment& environment) {
  ReportOptions options;
  PictureOptions pictures;
  Parser parser("report", "Prints what runs measured: epochs, ranks, where the time went.");
  parser.add_option("RUN", options.runs, "run folders, such as runs/NAME")->required();
  parser.add_flag("--compare", options.compare, "one column per run");
  parser.add_flag("--csv", options.csv, "comma-separated rows");
  parser.add_flag("--follow", options.follow,
                  "wait for the run, and print its epochs and steps until it has ended");
  parser
      .add_option("--html", pictures.html, "write a page with pictures of the runs; it needs no other file")
      ->option_text("FILE");
  parser.add_option("--plots", pictures.plots, "write the same pictures as PNG files")->option_text("FOLDER");
  parser.add_flag("--gather", options.gather,
                  "copy what the ranks of a run that died have left into its results.h5");
  if (const auto help = parse(parser, words)) return print_task(*help);
  pictures.python = python_of(environment.python);
  pictures.packages = packages_folder();
  const ErrorContext context{
      .subject = options.runs.front(), .advice = "take another copy of the run", .code = ExitCode::data};
  return {.alone =
              [options, pictures, context] {
                h5::Library library;
                if (pictures.wanted()) return draw(library, options, pictures);
                understand_from_outside(context, [&] { report(library, options, std::cout); });
                return ExitCode::success;
              },
          .elsewhere = context,
          .together = {}};
}

}  // namespace dtrain::app
