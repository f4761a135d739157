#include "h5/attribute.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/error.hpp"
#include "h5/handle.hpp"
#include "h5/string_buffer.hpp"
#include "h5/types.hpp"

namespace dtrain::h5 {
namespace {

std::string attribute_name(const std::string& name) { return "attribute " + name; }

std::string subject(hid_t object, const std::string& name) {
  return describe(object) + ":" + attribute_name(name);
}

Dataspace scalar_space() { return Dataspace(check_id(H5Screate(H5S_SCALAR), "HDF5 refuses a scalar", "")); }

Dataspace line_space(hsize_t n) {
  return Dataspace(check_id(H5Screate_simple(1, &n, nullptr), "HDF5 refuses a 1-D space", ""));
}

void write(hid_t object, const std::string& name, hid_t in_file, hid_t in_memory, const Dataspace& space,
           const void* values) {
  if (H5Aexists(object, name.c_str()) > 0) {
    check(H5Adelete(object, name.c_str()), "cannot be replaced", object, attribute_name(name));
  }
  const Attribute attribute(
      check_id(H5Acreate2(object, name.c_str(), in_file, space.id(), H5P_DEFAULT, H5P_DEFAULT),
               "cannot be created", object, attribute_name(name)));
  if (values == nullptr) return;  // of an empty vector, which HDF5 refuses to write
  check(H5Awrite(attribute.id(), in_memory, values), "cannot be written", object, attribute_name(name));
}

Attribute open(hid_t object, const std::string& name) {
  Attribute attribute(
      check_id(H5Aopen(object, name.c_str(), H5P_DEFAULT), "is missing", object, attribute_name(name)));
  const Datatype type(check_id(H5Aget_type(attribute.id()), "has no type", object, attribute_name(name)));
  require(is_sound(type.id()), "is damaged: its numbers lie outside their bytes",
          {.subject = subject(object, name)});
  return attribute;
}

std::size_t count(const Attribute& attribute, const std::string& what) {
  const Dataspace space(check_id(H5Aget_space(attribute.id()), "has no shape", what));
  return static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.id()));
}

template <class T>
std::vector<T> read_numbers(hid_t object, const std::string& name) {
  const SilentErrors silent;
  const Attribute attribute = open(object, name);
  const Datatype type(check_id(H5Aget_type(attribute.id()), "has no type", object, attribute_name(name)));
  require(std::is_floating_point_v<T> || H5Tget_class(type.id()) == H5T_INTEGER, "is not a whole number",
          {.subject = subject(object, name)});
  std::vector<T> values(count(attribute, subject(object, name)));
  if (values.empty()) return values;
  check(H5Aread(attribute.id(), native_type(element_of<T>()), values.data()), "is not a number", object,
        attribute_name(name));
  return values;
}

template <class T>
T only(const std::vector<T>& values, hid_t object, const std::string& name) {
  require(values.size() == 1, "has " + std::to_string(values.size()) + " values instead of one",
          {.subject = subject(object, name)});
  return values.front();
}

template <class T>
void write_numbers(hid_t object, const std::string& name, const Dataspace& space, const T* values) {
  const Datatype type = file_type(element_of<T>());
  write(object, name, type.id(), native_type(element_of<T>()), space, values);
}

}  // namespace

bool has_attribute(hid_t object, const std::string& name) {
  const SilentErrors silent;
  return H5Aexists(object, name.c_str()) > 0;
}

void write_attribute(hid_t object, const std::string& name, std::int64_t value) {
  const SilentErrors silent;
  write_numbers(object, name, scalar_space(), &value);
}

void write_attribute(hid_t object, const std::string& name, double value) {
  const SilentErrors silent;
  write_numbers(object, name, scalar_space(), &value);
}

void write_attribute(hid_t object, const std::string& name, std::string_view value) {
  const SilentErrors silent;
  const Datatype type = string_type(value.size());
  const std::string text(value.empty() ? std::string_view("\0", 1) : value);
  write(object, name, type.id(), type.id(), scalar_space(), text.data());
}

void write_attribute(hid_t object, const std::string& name, const std::vector<std::int64_t>& values) {
  const SilentErrors silent;
  write_numbers(object, name, line_space(values.size()), values.data());
}

void write_attribute(hid_t object, const std::string& name, const std::vector<double>& values) {
  const SilentErrors silent;
  write_numbers(object, name, line_space(values.size()), values.data());
}

void write_attribute(hid_t object, const std::string& name, const std::vector<std::string>& values) {
  const SilentErrors silent;
  const StringBuffer buffer = pack_strings(values);
  const Datatype type = string_type(buffer.width);
  write(object, name, type.id(), type.id(), line_space(values.size()), buffer.bytes.data());
}

std::int64_t read_int_attribute(hid_t object, const std::string& name) {
  return only(read_ints_attribute(object, name), object, name);
}

double read_double_attribute(hid_t object, const std::string& name) {
  return only(read_doubles_attribute(object, name), object, name);
}

std::string read_string_attribute(hid_t object, const std::string& name) {
  return only(read_strings_attribute(object, name), object, name);
}

std::vector<std::int64_t> read_ints_attribute(hid_t object, const std::string& name) {
  return read_numbers<std::int64_t>(object, name);
}

std::vector<double> read_doubles_attribute(hid_t object, const std::string& name) {
  return read_numbers<double>(object, name);
}

std::vector<std::string> read_strings_attribute(hid_t object, const std::string& name) {
  const SilentErrors silent;
  const Attribute attribute = open(object, name);
  const std::string what = subject(object, name);
  const Datatype type(check_id(H5Aget_type(attribute.id()), "has no type", what));
  require(H5Tget_class(type.id()) == H5T_STRING, "is not a string", {.subject = what});
  const Dataspace space(check_id(H5Aget_space(attribute.id()), "has no shape", what));
  return unpack_strings(type, space, count(attribute, what), what, [&](hid_t memory_type, void* values) {
    return H5Aread(attribute.id(), memory_type, values);
  });
}

}  // namespace dtrain::h5
