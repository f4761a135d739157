#include "h5/check.hpp"

#include <array>
#include <cstddef>

#include "core/error.hpp"

namespace dtrain::h5 {
namespace {

// Called from the outermost call inwards; the innermost reason is the one that names the cause.
herr_t keep_innermost(unsigned /*n*/, const H5E_error2_t* entry, void* text) {
  if (entry->desc != nullptr && *entry->desc != '\0') *static_cast<std::string*>(text) = entry->desc;
  return 0;
}

/// Of `file write failed: time = ..., error message = 'No space left on device', ...` the system's words.
std::string system_words(const std::string& reason) {
  constexpr std::string_view kBefore = "error message = '";
  const std::size_t at = reason.find(kBefore);
  if (at == std::string::npos) return reason;
  const std::size_t begin = at + kBefore.size();
  return reason.substr(begin, reason.find('\'', begin) - begin);
}

std::string with_reason(std::string_view problem) {
  const std::string reason = system_words(last_error());
  return reason.empty() ? std::string(problem) : std::string(problem) + " (HDF5: " + reason + ")";
}

[[noreturn]] void fail(std::string_view problem, const std::string& subject) {
  throw Error(with_reason(problem), {.subject = subject});
}

[[noreturn]] void fail(std::string_view problem, hid_t object, const std::string& path) {
  const std::string text = with_reason(problem);  // before describe(), which clears the reason
  throw Error(text, {.subject = path.empty() ? describe(object) : describe(object) + ":" + path});
}

}  // namespace

SilentErrors::SilentErrors() {
  H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

SilentErrors::~SilentErrors() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }

std::string last_error() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep_innermost, &text);
  return text;
}

std::string describe(hid_t object) {
  const SilentErrors silent;
  std::array<char, 512> name{};
  std::string text;
  if (H5Fget_name(object, name.data(), name.size()) > 0) text = name.data();
  name = {};
  if (H5Iget_name(object, name.data(), name.size()) > 0 && std::string_view(name.data()) != "/") {
    text += ":";
    text += name.data();
  }
  return text;
}

void check(herr_t result, std::string_view problem, const std::string& subject) {
  if (result < 0) fail(problem, subject);
}

void check(herr_t result, std::string_view problem, hid_t object, const std::string& path) {
  if (result < 0) fail(problem, object, path);
}

hid_t check_id(hid_t id, std::string_view problem, hid_t object, const std::string& path) {
  if (id < 0) fail(problem, object, path);
  return id;
}

hid_t check_id(hid_t id, std::string_view problem, const std::string& subject) {
  if (id < 0) fail(problem, subject);
  return id;
}

void close_quietly(herr_t (*close)(hid_t), hid_t id) noexcept {
  if (id < 0) return;
  const SilentErrors silent;
  close(id);
}

void close_checked(herr_t (*close)(hid_t), hid_t id) {
  if (id < 0) return;
  const std::string subject = describe(id);
  const SilentErrors silent;
  check(close(id), "cannot be closed", subject);
}

}  // namespace dtrain::h5
