#include "train/setup/library_errors.hpp"

#include <c10/util/Exception.h>

#include "core/error.hpp"
#include "core/printable.hpp"

namespace dtrain::train {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::string words_of(const std::exception& error) {
  const auto* const library = dynamic_cast<const c10::Error*>(&error);
  if (library == nullptr) return error.what();
  const std::string sentence = library->what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(library) == nullptr) return printable(first_line(sentence));
  return Error(first_line(sentence),
               {.subject = "--device",
                .advice =
                    "take a smaller --global-batch, more --micro-batches, --recompute full or more ranks"})
      .what();
}

}  // namespace dtrain::train
