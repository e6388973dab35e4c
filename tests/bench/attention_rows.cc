// What would run an attention problem, and why: by the table alone.

#include <memory>

#include "attention/explain.h"
#include "tests/bench/rows.h"

namespace kiln::bench {
namespace {

/// Refused for four reasons, each with remedies to try: about the longest answer that
/// one problem has.
attention::Question refused() {
  using namespace attention;
  Problem problem{.pass = Pass::kBackward,
                  .training = true,
                  .dtype = DType::kBf16,
                  .batch = 2,
                  .heads = 16,
                  .kv_heads = 4,
                  .sq = 1024,
                  .skv = 4096,
                  .dqk = 192,
                  .dv = 128,
                  .mask = Mask::kCausalBottomRight,
                  .stats = true};
  set_strides(problem);
  return {problem, {9, 0}, {8, 9, 0}};
}

template <typename Work>
Sample each_of(std::size_t calls, Work work) {
  return [=]() -> Result<Seconds> {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < calls; ++i) {
      if (work())
        return fail(ErrorCode::kInvalidArgument, "this problem is to be refused");
    }
    return Seconds(std::chrono::steady_clock::now() - begin) / calls;
  };
}

}  // namespace

std::vector<Row> attention_rows(const Settings& settings) {
  const std::size_t calls = settings.batch_calls;
  const auto prepare = [=]() -> Result<Sides> {
    const attention::Question question = refused();
    return Sides{
        .measured = each_of(
            calls,
            [=] { return explain(question, {}).chosen == attention::Choice::kCudnn; }),
        .floor = each_of(
            calls, [=] { return attention::built_in_rules().is_supported(question); })};
  };
  return {{.name = "attention/explain",
           .what = "attention problem -> refusals with remedies",
           .floor = "the rules asked up to the first that refuses",
           .limit = {1, Seconds(1e-3)},
           .prepare = prepare}};
}

}  // namespace kiln::bench
