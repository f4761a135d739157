#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "checkpoint/export.hpp"
#include "checkpoint/reader.hpp"
#include "commands.hpp"
#include "core/outside.hpp"
#include "core/printable.hpp"
#include "h5/library.hpp"
#include "options/command_line.hpp"
#include "run/checkpoint_config.hpp"
#include "run/run_contents.hpp"

namespace dtrain::app {

Task export_command(const Words& words, const Environment&) {
  std::string folder;
  std::string out;
  Parser parser("export",
                "Writes the weights of a checkpoint into one file, whole and under PyTorch's names.");
  parser.add_option("CHECKPOINT", folder, "its folder, or a run's, such as runs/NAME, for its best")
      ->required();
  parser.add_option("OUT", out, "the file to write: .h5 or .safetensors")->required();
  if (const auto help = parse(parser, words)) return print_task(*help);
  const ErrorContext context{.subject = named_checkpoint(folder).string(),
                             .advice = "take another checkpoint",
                             .code = ExitCode::checkpoint};
  return {.alone =
              [context, out] {
                h5::Library library;
                require_not_kept("OUT", out);
                const auto checkpoint = understand_from_outside(context, [&] {
                  auto whole = checkpoint::load(context.subject, library);
                  checkpoint::export_model(whole, out, library);
                  return whole;
                });
                fmt::print("{}: the weights of {} after step {}\n", printable(out),
                           printable(checkpoint.info().model), checkpoint.info().step);
                return ExitCode::success;
              },
          .elsewhere = context,
          .together = {}};
}

}  // namespace dtrain::app
