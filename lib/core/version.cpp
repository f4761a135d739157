#include "core/version.hpp"

#include <fmt/format.h>
#include <link.h>

#include <cstddef>
#include <cstring>

namespace dtrain {
namespace {

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

/// Of the notes in [at, end) the build-id.
std::string build_id_in(const char* at, const char* end) {
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const char* const name = at + sizeof note;
    const char* const value = name + padded(note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string text;
      for (std::size_t i = 0; i < note.n_descsz; ++i)
        text += fmt::format("{:02x}", static_cast<unsigned char>(value[i]));
      return text;
    }
    at = value + padded(note.n_descsz);
  }
  return {};
}

/// Called for each loaded object, the program first.
int look_into_program(dl_phdr_info* info, std::size_t /*size*/, void* result) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const char* const notes = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    const auto found = build_id_in(notes, notes + header.p_memsz);
    if (!found.empty()) *static_cast<std::string*>(result) = found;
  }
  return 1;  // that was the program
}

}  // namespace

std::string_view version() { return DTRAIN_VERSION; }

std::string build_id() {
  std::string id = "none";
  ::dl_iterate_phdr(look_into_program, &id);
  return id;
}

}  // namespace dtrain
