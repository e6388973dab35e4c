#include "compile/worker/nvjitlink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kiln::compile {
namespace {

using testing::HasSubstr;

TEST(LinkHere, ALibraryThatIsNoLinkerIsNamed) {
  LinkJob job;
  job.linker = "/no/such/libnvJitLink.so.13";
  const auto absent = link_here(job, [](BuildPhase) {});
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(absent.error().message, HasSubstr("/no/such/libnvJitLink.so.13"));
  job.linker = "libc.so.6";
  const auto other = link_here(job, [](BuildPhase) {});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(other.error().message, HasSubstr("lacks functions of nvJitLink"));
}

}  // namespace
}  // namespace kiln::compile
