#include "compile/pool/output_check.h"

#include <gtest/gtest.h>

#include "tests/support/is_error.h"

namespace kiln::compile {
namespace {

constexpr std::string_view kPtx =
    ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry "
    "_Z1kIfEvv()\n{\n}\n";

CompileJob ptx_job() {
  CompileJob job;
  job.target = {{{9, 0}, device::ArchSuffix::kNone}, device::ImageKind::kPtx};
  return job;
}

CompileOutput output_of(std::string_view image) {
  CompileOutput output;
  const auto bytes = as_bytes(image);
  output.image.assign(bytes.begin(), bytes.end());
  output.lowered_names = {{"k<float>", "_Z1kIfEvv"}};
  return output;
}

TEST(OutputCheck, PtxOfTheRightArchitecturePasses) {
  const auto checked = check_output(ptx_job(), output_of(kPtx));
  EXPECT_TRUE(checked) << checked.error().message;
}

TEST(OutputCheck, PtxOfAnotherArchitectureFails) {
  auto job = ptx_job();
  job.target.architecture.capability = {8, 0};
  EXPECT_THAT(check_output(job, output_of(kPtx)),
              test::IsError(ErrorCode::kCompileFailed));
}

TEST(OutputCheck, ANameThatIsNotInTheImageFails) {
  auto output = output_of(kPtx);
  output.lowered_names.push_back({"k<int>", "_Z1kIiEvv"});
  const auto checked = check_output(ptx_job(), output);
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message.find("k<int>"), std::string::npos);
}

TEST(OutputCheck, PtxIsNoCubin) {
  auto job = ptx_job();
  job.target.kind = device::ImageKind::kCubin;
  EXPECT_FALSE(check_output(job, output_of(kPtx)));
  EXPECT_FALSE(check_output(job, output_of("")));
}

}  // namespace
}  // namespace kiln::compile
