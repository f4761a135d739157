#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.hpp"
#include "topology/mesh.hpp"

namespace dtrain::topology {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::string& text, int world_size) {
  try {
    const MeshShape shape = MeshShape::parse(text, world_size);
    return "accepted as " + shape.to_string();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage) << text;
    return error.what();
  }
}

TEST(MeshShapeTest, ReadsAxesInAnyOrderAndInfersData) {
  EXPECT_EQ(MeshShape::parse("data=4,pipe=2", 8).to_string(), "data=4,pipe=2,tensor=1");
  EXPECT_EQ(MeshShape::parse("tensor=2,pipe=2", 8).to_string(), "data=2,pipe=2,tensor=2");
  EXPECT_EQ(MeshShape::parse("pipe=3", 3).to_string(), "data=1,pipe=3,tensor=1");
  EXPECT_EQ(MeshShape::parse("data=512", 512).size(), 512);
}

TEST(MeshShapeTest, NamesTheNumbersThatWouldDo) {
  EXPECT_THAT(refusal("data=3", 4),
              AllOf(HasSubstr("--mesh data=3"), HasSubstr("needs 3 ranks but the job has 4"),
                    HasSubstr("data=4"), HasSubstr("start 3 ranks")));
  EXPECT_THAT(refusal("pipe=3", 8), AllOf(HasSubstr("3 does not divide 8"), HasSubstr("1, 2, 4, 8")));
  EXPECT_THAT(refusal("data=2,pipe=2,tensor=2", 12), HasSubstr("data=3 with 12 ranks"));
}

TEST(MeshShapeTest, RefusesGarbageByName) {
  EXPECT_THAT(refusal("depth=2", 4), HasSubstr("no axis 'depth'"));
  EXPECT_THAT(refusal("data=0", 4), HasSubstr("at least 1 rank, not 0"));
  EXPECT_THAT(refusal("pipe=-2", 4), HasSubstr("at least 1 rank, not -2"));
  EXPECT_THAT(refusal("data=2,data=2", 4), HasSubstr("axis data is named twice"));
  for (const char* text :
       {"", ",", "data", "data=", "data=4,", "data=4x", "data=4.0", "=4", "data=99999999999", " "}) {
    EXPECT_THAT(refusal(text, 4), Not(HasSubstr("accepted"))) << "'" << text << "'";
  }
}

TEST(MeshShapeTest, DoesNotOverflowOnHugeAxes) {
  EXPECT_THAT(refusal("data=2147483647,pipe=2147483647,tensor=2147483647", 8),
              HasSubstr("does not divide 8"));
}

}  // namespace
}  // namespace dtrain::topology
