#pragma once

#include <hdf5.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::h5 {

// Attributes of a file, group or dataset given by id(). Writing replaces an attribute of that name. At most
// 64 kB each: the earliest file format keeps them in the object's header.

bool has_attribute(hid_t object, const std::string& name);

void write_attribute(hid_t object, const std::string& name, std::int64_t value);
void write_attribute(hid_t object, const std::string& name, double value);
void write_attribute(hid_t object, const std::string& name, std::string_view value);  ///< Fixed-length UTF-8.
void write_attribute(hid_t object, const std::string& name, const std::vector<std::int64_t>& values);
void write_attribute(hid_t object, const std::string& name, const std::vector<double>& values);
void write_attribute(hid_t object, const std::string& name, const std::vector<std::string>& values);
/// Without this a literal would become a bool and an int would be ambiguous.
inline void write_attribute(hid_t object, const std::string& name, const char* value) {
  write_attribute(object, name, std::string_view(value));
}
inline void write_attribute(hid_t object, const std::string& name, int value) {
  write_attribute(object, name, static_cast<std::int64_t>(value));
}

// Reading converts numbers and takes fixed and variable-length strings. Throws Error where the attribute is
// missing or of another kind.
std::int64_t read_int_attribute(hid_t object, const std::string& name);
double read_double_attribute(hid_t object, const std::string& name);
std::string read_string_attribute(hid_t object, const std::string& name);
std::vector<std::int64_t> read_ints_attribute(hid_t object, const std::string& name);
std::vector<double> read_doubles_attribute(hid_t object, const std::string& name);
std::vector<std::string> read_strings_attribute(hid_t object, const std::string& name);

}  // namespace dtrain::h5
