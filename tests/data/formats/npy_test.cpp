#include "data/formats/npy.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace dtrain::data {
namespace {

/// A file of format version 1 with three numbers.
std::string three(const std::string& descr, const std::string& numbers) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (3,), }";
  header.resize(117, ' ');
  header += '\n';
  std::string content("\x93NUMPY\x01\x00", 8);
  content += static_cast<char>(header.size());
  content += '\0';
  return content + header + numbers;
}

std::vector<float> floats_of(const Column& column) {
  EXPECT_EQ(column.type(), ElementType::float32);
  std::vector<float> values(static_cast<std::size_t>(column.rows()));
  EXPECT_EQ(column.row_bytes(), sizeof(float));
  column.read(0, column.rows(), reinterpret_cast<std::byte*>(values.data()));
  return values;
}

const std::string kUnsigned16("\x01\x00\x00\x01\xff\xff", 6);

TEST(NpyTest, NumbersOfOtherTypesBecomeTheFirstTypeThatHoldsAny) {
  using enum ElementType;
  const std::vector<float> expected = {1.0F, 256.0F, 65535.0F};
  EXPECT_EQ(floats_of(*read_npy(three("<u2", kUnsigned16), "x", {float32, uint8})), expected);
  EXPECT_EQ(floats_of(*read_npy(three("<u2", kUnsigned16), "x", {uint8, float32})), expected)
      << "a byte holds none of them";
  EXPECT_EQ(read_npy(three("<u2", kUnsigned16), "x", {int64, float32})->type(), int64);
}

TEST(NpyTest, WholeNumbersAreIdsWhereIdsAreAccepted) {
  using enum ElementType;
  const std::vector<ElementType> accepted = {float32, uint8, int64};
  EXPECT_EQ(read_npy(three("<u2", kUnsigned16), "x", accepted)->type(), int64);
  EXPECT_EQ(read_npy(three("<i4", std::string(12, '\1')), "x", accepted)->type(), int64);
  EXPECT_EQ(read_npy(three("|u1", std::string(3, '\1')), "x", accepted)->type(), uint8) << "a picture's";
  EXPECT_EQ(read_npy(three("|b1", std::string(3, '\1')), "x", accepted)->type(), float32);
  EXPECT_EQ(read_npy(three("<f8", std::string(24, '\0')), "x", accepted)->type(), float32);
}

TEST(NpyTest, BooleansAreNumbers) {
  const std::vector<float> expected = {1.0F, 0.0F, 1.0F};
  const auto column =
      read_npy(three("|b1", std::string("\x01\x00\x01", 3)), "x", {ElementType::uint8, ElementType::float32});
  EXPECT_EQ(floats_of(*column), expected);
}

TEST(NpyTest, RefusesNumbersThatNoAcceptedTypeHolds) {
  EXPECT_THROW(read_npy(three("<u2", kUnsigned16), "x", {ElementType::uint8}), Error);
}

}  // namespace
}  // namespace dtrain::data
