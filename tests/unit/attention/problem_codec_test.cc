#include "attention/problem_codec.h"

#include "tests/support/test.h"
#include "tests/unit/attention/problems.h"

namespace kiln::attention {
namespace {

/// With nothing left as it usually is.
Problem unusual() {
  Problem problem = with_mask(base(Pass::kBackward), Mask::kPaddingCausal);
  problem.kv_heads = 4;
  problem.dv = 64;
  problem.layout = Layout::kSbhd;
  problem.window_left = 128;
  problem.window_right = 0;
  problem.bias_kind = Bias::kPostScale;
  problem.bias_gradient = true;
  problem.dropout = 0.1;
  problem.deterministic = problem.stats = problem.capture = true;
  set_strides(problem);
  problem.q.sequence += 64;
  problem.o.group = problem.o.head;
  problem.bias = {.batch = 1 << 20, .sequence = 2048, .dim = 1};
  return problem;
}

TEST(ProblemCodec, AProblemComesBackFromItsFieldsAsItWas) {
  for (const Problem& problem : {base(), base(Pass::kBackward), unusual()}) {
    const auto back = problem_from(to_fields(problem));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, problem);
  }
}

TEST(ProblemCodec, EveryChangeChangesTheFields) {
  const std::vector<std::function<void(Problem&)>> changes{
      [](Problem& p) { p.pass = Pass::kBackward; },
      [](Problem& p) { p.training = true; },
      [](Problem& p) { p.dtype = DType::kF16; },
      [](Problem& p) { p.batch = 3; },
      [](Problem& p) { p.heads = 32; },
      [](Problem& p) { p.kv_heads = 2; },
      [](Problem& p) { p.sq = 1; },
      [](Problem& p) { p.skv = 1; },
      [](Problem& p) { p.dqk = 8; },
      [](Problem& p) { p.dv = 8; },
      [](Problem& p) { p.layout = Layout::kThd; },
      [](Problem& p) { p.q.batch += 1; },
      [](Problem& p) { p.k.head += 1; },
      [](Problem& p) { p.v.sequence += 1; },
      [](Problem& p) { p.o.dim += 1; },
      [](Problem& p) { p.q.group = 1; },
      [](Problem& p) { p.mask = Mask::kCausal; },
      [](Problem& p) { p.window_left = 1; },
      [](Problem& p) { p.window_right = 1; },
      [](Problem& p) { p.bias_kind = Bias::kAlibi; },
      [](Problem& p) { p.bias.batch = 1; },
      [](Problem& p) { p.bias.sequence = 1; },
      [](Problem& p) { p.bias_gradient = true; },
      [](Problem& p) { p.dropout = 0.1; },
      [](Problem& p) { p.deterministic = true; },
      [](Problem& p) { p.stats = true; },
      [](Problem& p) { p.capture = true; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Problem changed = base();
    changes[i](changed);
    EXPECT_NE(to_fields(changed).digest(), to_fields(base()).digest()) << i;
  }
}

TEST(ProblemCodec, AFieldThatCameLaterIsThereOnlyWhereItIsNotItsDefault) {
  Problem problem = base();
  problem.bias_kind = Bias::kPostScale;
  EXPECT_FALSE(to_fields(problem).find("bias_strides"));
  problem.bias = {.batch = 64, .dim = 1};
  EXPECT_EQ(to_fields(problem).find("bias_strides"), "64,0,0,1");
  EXPECT_EQ(shown_fields(problem).find("bias_strides"), "64,0,0,1");
}

TEST(ProblemCodec, FieldsThatAreNoProblemAreRefused) {
  Fields fields;
  for (const auto& [label, value] : to_fields(base()).list())
    fields.add(label, label == "batch" ? "many" : value);
  EXPECT_THAT(problem_from(fields).error().message, HasSubstr("field 'batch'"));
  EXPECT_THAT(problem_from(Fields()).error().message,
              HasSubstr("field 'pass' is missing"));
  for (const char* const strides : {"1,2,3", "1,2,3,4,0", "1,2,3,4,5,6", "1;2;3;4",
                                    "1,2,3,4 ", "-1,1,1,1", "9007199254740993,1,1,1"}) {
    Fields changed;
    for (const auto& [label, value] : to_fields(base()).list())
      changed.add(label, label == "q_strides" ? strides : value);
    EXPECT_FALSE(problem_from(changed)) << strides;
  }
  Problem none = base();
  none.batch = 0;
  EXPECT_EQ(problem_from(to_fields(none)).error().code, ErrorCode::kInvalidArgument);
}

TEST(ProblemCodec, ListingsShowWhatIsUnusual) {
  std::vector<std::string> labels;
  const Fields shown = shown_fields(base());
  for (const auto& field : shown.list()) labels.push_back(field.label);
  EXPECT_THAT(labels,
              testing::UnorderedElementsAre("dtype", "layout", "mask", "batch", "heads",
                                            "kv_heads", "sq", "skv", "dqk", "dv"));
  const Fields all = shown_fields(unusual());
  EXPECT_EQ(all.find("q_strides").has_value(), true);
  EXPECT_EQ(all.find("k_strides").has_value(), false);
  EXPECT_EQ(all.find("window_left"), "128");
  EXPECT_EQ(all.find("dropout"), "0.1");
  EXPECT_EQ(all.find("bias"), "post_scale");
}

TEST(ProblemCodec, FlagsAreThoseOfTheCommandLine) {
  EXPECT_EQ(flags_of(unusual()),
            "--pass bwd --dtype bf16 --layout sbhd --mask padding_causal --batch 2 "
            "--heads 16 --kv-heads 4 --sq 1024 --skv 1024 --dqk 128 --dv 64 --bias "
            "post_scale --training --deterministic --stats --capture --bias-gradient "
            "--dropout 0.1 --window 128,0");
}

}  // namespace
}  // namespace kiln::attention
