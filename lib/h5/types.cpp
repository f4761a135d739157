#include "h5/types.hpp"

#include <cstring>

#include "core/error.hpp"

namespace dtrain::h5 {
namespace {

Datatype copy_of(hid_t type) { return Datatype(check_id(H5Tcopy(type), "HDF5 cannot copy a type", "")); }

// IEEE 754 binary16: sign at bit 15, 5 bits of exponent from bit 10, 10 bits of mantissa, bias 15.
Datatype half_type() {
  Datatype type = copy_of(H5T_IEEE_F32LE);
  check(H5Tset_fields(type.id(), 15, 10, 5, 0, 10), "HDF5 refuses half precision", "");
  check(H5Tset_size(type.id(), 2), "HDF5 refuses half precision", "");
  check(H5Tset_ebias(type.id(), 15), "HDF5 refuses half precision", "");
  return type;
}

/// Of an enumeration or an array: what it is made of.
Datatype base_of(hid_t type) {
  return Datatype(check_id(H5Tget_super(type), "HDF5 cannot tell what a type is made of", ""));
}

bool has_sound_bits(hid_t type) {
  const std::size_t bits = 8 * H5Tget_size(type);
  const std::size_t precision = H5Tget_precision(type);
  const int offset = H5Tget_offset(type);
  return precision >= 1 && offset >= 0 && static_cast<std::size_t>(offset) + precision <= bits;
}

/// HDF5 keeps an exponent and a bias in 64 bits.
bool has_sound_fields(hid_t type) {
  std::size_t sign = 0;
  std::size_t exponent = 0;
  std::size_t exponent_bits = 0;
  std::size_t mantissa = 0;
  std::size_t mantissa_bits = 0;
  if (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) < 0) return false;
  const std::size_t bits = 8 * H5Tget_size(type);
  return sign < bits && exponent_bits >= 1 && exponent_bits <= 64 && exponent + exponent_bits <= bits &&
         mantissa_bits >= 1 && mantissa + mantissa_bits <= bits;
}

bool has_sound_members(hid_t type) {
  const int members = H5Tget_nmembers(type);
  for (int i = 0; i < members; ++i) {
    const auto index = static_cast<unsigned>(i);
    const Datatype member(check_id(H5Tget_member_type(type, index), "HDF5 cannot tell a member's type", ""));
    if (H5Tget_member_offset(type, index) + H5Tget_size(member.id()) > H5Tget_size(type)) return false;
    if (!is_sound(member.id())) return false;
  }
  return members >= 1;
}

/// A boolean as h5py writes it: an enumeration of one byte, FALSE 0 and TRUE 1.
bool is_boolean(hid_t type) {
  if (H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2) return false;
  const auto has = [type](unsigned index, const char* wanted) {
    char* const name = H5Tget_member_name(type, index);
    const bool named = name != nullptr && std::strcmp(name, wanted) == 0;
    H5free_memory(name);
    signed char value = -1;
    return named && H5Tget_member_value(type, index, &value) >= 0 && value == static_cast<int>(index);
  };
  return has(0, "FALSE") && has(1, "TRUE");
}

/// In either byte order.
bool is_float(hid_t type, const Datatype& little_endian) {
  if (H5Tequal(type, little_endian.id()) > 0) return true;
  const Datatype big_endian = copy_of(little_endian.id());
  check(H5Tset_order(big_endian.id(), H5T_ORDER_BE), "HDF5 refuses a byte order", "");
  return H5Tequal(type, big_endian.id()) > 0;
}

}  // namespace

hid_t native_type(ElementType type) {
  switch (type) {
    case ElementType::int8:
      return H5T_NATIVE_INT8;
    case ElementType::uint8:
      return H5T_NATIVE_UINT8;
    case ElementType::int16:
      return H5T_NATIVE_INT16;
    case ElementType::uint16:
      return H5T_NATIVE_UINT16;
    case ElementType::int32:
      return H5T_NATIVE_INT32;
    case ElementType::uint32:
      return H5T_NATIVE_UINT32;
    case ElementType::int64:
      return H5T_NATIVE_INT64;
    case ElementType::uint64:
      return H5T_NATIVE_UINT64;
    case ElementType::float32:
      return H5T_NATIVE_FLOAT;
    case ElementType::float64:
      return H5T_NATIVE_DOUBLE;
    default:
      throw Error(std::string(element_name(type)) + " has no native HDF5 type", {});
  }
}

Datatype file_type(ElementType type) {
  const SilentErrors silent;
  switch (type) {
    case ElementType::int8:
      return copy_of(H5T_STD_I8LE);
    case ElementType::uint8:
      return copy_of(H5T_STD_U8LE);
    case ElementType::int16:
      return copy_of(H5T_STD_I16LE);
    case ElementType::uint16:
      return copy_of(H5T_STD_U16LE);
    case ElementType::int32:
      return copy_of(H5T_STD_I32LE);
    case ElementType::uint32:
      return copy_of(H5T_STD_U32LE);
    case ElementType::int64:
      return copy_of(H5T_STD_I64LE);
    case ElementType::uint64:
      return copy_of(H5T_STD_U64LE);
    case ElementType::float16:
      return half_type();
    case ElementType::float32:
      return copy_of(H5T_IEEE_F32LE);
    case ElementType::float64:
      return copy_of(H5T_IEEE_F64LE);
    default:
      throw Error(std::string(element_name(type)) + " has no fixed HDF5 type", {});
  }
}

Datatype string_type(std::size_t bytes) {
  const SilentErrors silent;
  Datatype type = copy_of(H5T_C_S1);
  check(H5Tset_size(type.id(), bytes == 0 ? 1 : bytes), "HDF5 refuses a string length", "");
  check(H5Tset_cset(type.id(), H5T_CSET_UTF8), "HDF5 refuses UTF-8", "");
  check(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), "HDF5 refuses null padding", "");
  return type;
}

bool is_sound(hid_t type) {
  const SilentErrors silent;
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_BITFIELD:
      return has_sound_bits(type);
    case H5T_FLOAT:
      return has_sound_bits(type) && has_sound_fields(type);
    case H5T_COMPOUND:
      return has_sound_members(type);
    case H5T_ENUM:
    case H5T_ARRAY:
    case H5T_VLEN:
      return is_sound(base_of(type).id());
    default:
      return H5Tget_size(type) > 0;
  }
}

ElementType element_type(hid_t type) {
  const SilentErrors silent;
  const std::size_t bytes = H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_INTEGER: {
      const bool is_signed = H5Tget_sign(type) != H5T_SGN_NONE;
      if (bytes == 1) return is_signed ? ElementType::int8 : ElementType::uint8;
      if (bytes == 2) return is_signed ? ElementType::int16 : ElementType::uint16;
      if (bytes == 4) return is_signed ? ElementType::int32 : ElementType::uint32;
      if (bytes == 8) return is_signed ? ElementType::int64 : ElementType::uint64;
      return ElementType::other;
    }
    case H5T_FLOAT:  // by all its fields: bfloat16 has two bytes, too
      if (bytes == 2 && is_float(type, half_type())) return ElementType::float16;
      if (bytes == 4 && is_float(type, copy_of(H5T_IEEE_F32LE))) return ElementType::float32;
      if (bytes == 8 && is_float(type, copy_of(H5T_IEEE_F64LE))) return ElementType::float64;
      return ElementType::other;
    case H5T_STRING:
      return ElementType::string;
    case H5T_COMPOUND:
      return ElementType::compound;
    case H5T_ENUM:
      return is_boolean(type) ? ElementType::uint8 : ElementType::other;
    default:
      return ElementType::other;
  }
}

}  // namespace dtrain::h5
