
#include "cudnn/library.h"
#include "cudnn/table.h"
#include "tests/support/is_error.h"
#include "tests/support/simulated_cudnn.h"
#include "tests/support/test.h"

namespace kiln::attention {
namespace {

TEST(CudnnLibrary, ThatCannotBeOpenedSaysWhy) {
  EXPECT_THAT(CudnnLibrary::open("/nowhere/libcudnn.so.9"),
              test::IsError(ErrorCode::kUnavailable,
                            HasSubstr("cannot open cuDNN /nowhere/libcudnn.so.9: ")));
  const test::SimulatedDriver other;
  EXPECT_THAT(CudnnLibrary::open(other.path()),
              test::IsError(ErrorCode::kUnavailable,
                            other.path().native() + " has no cudnnGetVersion"));
}

TEST(CudnnLibrary, IsOpenedOnceAndNeedsNoDevice) {
  if (test::real_cudnn().empty())
    GTEST_SKIP() << "no libcudnn.so.9";
  const test::SimulatedDriver driver("");
  const test::SimulatedCudnn cudnn(driver);
  cudnn.set_version({.major = 9, .minor = 7, .patch = 1});
  const auto library = CudnnLibrary::open(cudnn.path());
  ASSERT_TRUE(library) << library.error().message;
  EXPECT_EQ(to_string(library->version()), "9.7.1");
  EXPECT_EQ(library->path(), cudnn.path());
  EXPECT_EQ(&CudnnLibrary::open(cudnn.path())->table(), &library->table());
}

TEST(CudnnLibrary, IsOpenedAfterThePartThatAWorkerHasUsed) {
  if (test::real_cudnn().empty())
    GTEST_SKIP() << "no libcudnn.so.9";
  const test::SimulatedDriver driver("");
  const test::SimulatedCudnn cudnn(driver);
  const auto refused = CudnnLibrary::open(cudnn.path(), "/nowhere/libcudnn_graph.so.9");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("cannot open cuDNN /nowhere/libcudnn_graph.so.9: "));
}

using SimulatedCudnn = testing::Test;

TEST_F(SimulatedCudnn, CrashesAsCudnnDoesOnAPlanWithoutAHandle) {
  if (test::real_cudnn().empty())
    GTEST_SKIP() << "no libcudnn.so.9";
  const test::SimulatedDriver driver;
  const test::SimulatedCudnn library(driver);
  const CudnnTable& table = CudnnLibrary::open(library.path())->table();
  cudnn::Descriptor plan = nullptr;
  ASSERT_EQ(
      table.cudnnBackendCreateDescriptor(cudnn::DescriptorKind::kExecutionPlan, &plan),
      cudnn::Status::kSuccess);
  EXPECT_DEATH(static_cast<void>(table.cudnnBackendFinalize(plan)),
               "a plan is finalised without a handle");
}

}  // namespace
}  // namespace kiln::attention
