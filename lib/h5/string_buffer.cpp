#include "h5/string_buffer.hpp"

#include <algorithm>
#include <cstring>

#include "h5/check.hpp"

namespace dtrain::h5 {
namespace {

std::vector<std::string> unpack_variable(const Datatype& type, const Dataspace& space, std::size_t n,
                                         const std::string& subject,
                                         const std::function<herr_t(hid_t, void*)>& read) {
  std::vector<char*> pointers(n, nullptr);
  check(read(type.id(), static_cast<void*>(pointers.data())), "strings cannot be read", subject);
  std::vector<std::string> values;
  values.reserve(n);
  for (const char* text : pointers) values.emplace_back(text == nullptr ? "" : text);
  check(H5Dvlen_reclaim(type.id(), space.id(), H5P_DEFAULT, static_cast<void*>(pointers.data())),
        "strings cannot be freed", subject);
  return values;
}

}  // namespace

StringBuffer pack_strings(const std::vector<std::string>& values) {
  StringBuffer buffer;
  for (const std::string& value : values) buffer.width = std::max(buffer.width, value.size());
  buffer.bytes.assign(values.size() * buffer.width, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::memcpy(buffer.bytes.data() + i * buffer.width, values[i].data(), values[i].size());
  }
  return buffer;
}

std::vector<std::string> unpack_strings(const Datatype& type, const Dataspace& space, std::size_t n,
                                        const std::string& subject,
                                        const std::function<herr_t(hid_t, void*)>& read) {
  if (H5Tis_variable_str(type.id()) > 0) return unpack_variable(type, space, n, subject, read);
  const std::size_t width = H5Tget_size(type.id());
  const bool space_padded = H5Tget_strpad(type.id()) == H5T_STR_SPACEPAD;
  std::vector<char> bytes(n * width);
  check(read(type.id(), bytes.data()), "strings cannot be read", subject);
  std::vector<std::string> values;
  values.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    const char* text = bytes.data() + i * width;
    std::size_t length = strnlen(text, width);
    while (space_padded && length > 0 && text[length - 1] == ' ') --length;
    values.emplace_back(text, length);
  }
  return values;
}

}  // namespace dtrain::h5
