#include "h5/types.hpp"

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
    default:
      return ElementType::other;
  }
}

}  // namespace dtrain::h5
