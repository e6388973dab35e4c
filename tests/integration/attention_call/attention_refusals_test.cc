// Calls of attention that are refused: with nothing on the stream, and the reason said.

#include <fmt/format.h>

#include "tests/integration/attention_call/attention_calls.h"
#include "tests/support/is_error.h"

namespace kiln {
namespace {

using attention::Pass;

class AttentionRefusals : public AttentionCallTest {
 protected:
  void expect_refused(const Result<void>& result, const std::string& words) {
    EXPECT_THAT(result, test::IsError(ErrorCode::kInvalidArgument, HasSubstr(words)));
    EXPECT_THAT(launched(), IsEmpty());
  }
};

TEST_F(AttentionRefusals, OfAProblemThatIsNoneNameTheField) {
  attention::Problem problem = small_problem();
  problem.kv_heads = 3;
  expect_refused(call_unprepared(0, problem), "attention_forward: problem.kv_heads: ");
  EXPECT_FALSE(test::prepare(service(), device(0), problem));
  problem = small_problem(Pass::kBackward);
  problem.bias_gradient = true;
  expect_refused(call_unprepared(0, problem),
                 "attention_backward: options.bias_gradient: ");
}

TEST_F(AttentionRefusals, OfTensorsNameTheTensor) {
  const attention::Problem problem = small_problem();
  ops::AttentionTensors with = tensors(0, problem);
  with.k = nullptr;
  expect_refused(run(0, problem, with), "attention_forward: k is null");
  with = tensors(0, problem);
  with.o = const_cast<void*>(with.q);
  expect_refused(run(0, problem, with), "attention_forward: o overlaps q");
  with = tensors(0, problem);
  with.scale = std::numeric_limits<float>::infinity();
  expect_refused(run(0, problem, with), "scale is inf");
  attention::Problem training = problem;
  training.training = true;
  with = tensors(0, problem);
  with.stats = nullptr;
  expect_refused(run(0, training, with), "attention_forward: stats is null");
}

TEST_F(AttentionRefusals, OfAWorkspaceSayHowMuchIsNeeded) {
  const attention::Problem problem = small_problem(Pass::kBackward);
  const auto bytes = choice(1, problem).workspace_bytes;
  EXPECT_GE(bytes, 4U * 4 * 256);
  expect_refused(call_unprepared(1, problem, bytes - 1),
                 fmt::format("needs a workspace of {} bytes, as "
                             "prepare_attention_backward() says, and {} were given",
                             bytes, bytes - 1));
  EXPECT_EQ(why(call_unprepared(1, problem, bytes)), "done");
}

TEST_F(AttentionRefusals, OfAWorkspaceSayWhereItMustBe) {
  const attention::Problem problem = small_problem(Pass::kBackward);
  const auto bytes = choice(1, problem).workspace_bytes;
  ops::AttentionTensors with = tensors(1, problem, bytes + 256);
  with.workspace = static_cast<char*>(with.workspace) + 16;
  with.workspace_bytes = bytes;
  expect_refused(run(1, problem, with), "no multiple of 256 bytes");
  with = tensors(1, problem, bytes);
  with.q = static_cast<char*>(with.workspace) + with.workspace_bytes - 16;
  expect_refused(run(1, problem, with), "workspace overlaps q");
}

TEST_F(AttentionRefusals, UnderCaptureOfWhatWasNotPreparedLeaveTheCaptureWhole) {
  const attention::Problem problem = small_problem();
  expect_refused(call_captured(1, problem), "the stream is being captured");
  EXPECT_EQ(driver_.loads(), 0U);
  EXPECT_EQ(why(call_unprepared(1, problem)), "done");
}

TEST_F(AttentionRefusals, UnderCaptureAreOfWhatCouldNotBePreparedToo) {
  const attention::Problem problem = small_problem();
  ASSERT_EQ(driver_.inject("cuModuleLoadDataEx", 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
  ASSERT_FALSE(test::prepare(service(), device(1), problem));
  expect_refused(call_captured(1, problem), "the stream is being captured");
  EXPECT_EQ(why(call(1, problem)), "done");
}

TEST_F(AttentionRefusals, OfADeviceThatIsNotTheServicesAreClear) {
  Device other = device(0);
  other.name = "another";
  EXPECT_THAT(test::prepare(service(), other, small_problem()),
              test::IsError(ErrorCode::kInvalidArgument));
}

}  // namespace
}  // namespace kiln
