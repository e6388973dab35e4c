#include "compile/worker/nvjitlink.h"

#include "tests/support/is_error.h"
#include "tests/support/test.h"
#include "util/library_search.h"

namespace kiln::compile {
namespace {

TEST(LinkHere, ALibraryThatIsNoLinkerIsNamed) {
  LinkJob job;
  job.linker = "/no/such/libnvJitLink.so.13";
  EXPECT_THAT(
      link_here(job, [](BuildPhase) {}),
      test::IsError(ErrorCode::kUnavailable, HasSubstr("/no/such/libnvJitLink.so.13")));
  job.linker = "libc.so.6";
  EXPECT_THAT(link_here(job, [](BuildPhase) {}),
              test::IsError(ErrorCode::kUnavailable,
                            HasSubstr("lacks functions of nvJitLink")));
}

/// With a real one, of objects that it does not understand.
TEST(LinkHere, ALinkerThatIsOlderThanTheCompilerIsNamedWithBothVersions) {
  const auto found =
      find_libraries({"libnvJitLink.so", {}, {}}, LibraryPlaces::of_process());
  if (!found || found->empty())
    GTEST_SKIP() << "there is no nvJitLink here";
  LinkJob job;
  job.linker = found->front().path;
  job.options = {"-arch=sm_90"};
  job.inputs = {{"a.cu", Bytes(64, std::byte{7})}};
  for (const auto& [cuda_version, is_older] :
       {std::pair{0, false}, {12000, false}, {99010, true}}) {
    job.cuda_version = cuda_version;
    const auto linked = link_here(job, [](BuildPhase) {});
    ASSERT_FALSE(linked);
    EXPECT_THAT(linked.error().message, HasSubstr("nvJitLinkAddData(a.cu)"));
    const auto hint =
        AllOf(HasSubstr(job.linker.native()), HasSubstr("is older than NVRTC 99.1"));
    if (is_older)
      EXPECT_THAT(linked.error().message, hint);
    else
      EXPECT_THAT(linked.error().message, Not(HasSubstr("older")));
  }
}

}  // namespace
}  // namespace kiln::compile
