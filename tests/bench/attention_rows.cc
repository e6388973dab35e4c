// What would run an attention problem, and why: by the table alone.

#include "attention/explain.h"
#include "tests/bench/rows.h"
#include "tests/support/attention_problem.h"

namespace kiln::bench {
namespace {

/// Refused for four reasons, each with remedies to try: about the longest answer that
/// one problem has.
attention::RuleQuestion refused() {
  const auto forward = test::usual_attention_problem([](auto& problem) {
    problem.stats = true;
    problem.kv_heads = 4;
    problem.skv = 4096;
    problem.dqk = 192;
    problem.mask = attention::Mask::kCausalBottomRight;
  });
  return {test::backward_of(forward), {9, 0}, {8, 9, 0}};
}

template <typename IsRun>
Sample each_of(std::size_t calls, IsRun is_run) {
  return [=] {
    return timed_each(calls, [&]() -> Result<void> {
      if (is_run())
        return fail(ErrorCode::kInvalidArgument, "this problem is to be refused");
      return {};
    });
  };
}

}  // namespace

std::vector<Row> attention_rows(const Settings& settings) {
  const std::size_t calls = settings.batch_calls;
  const auto prepare = [=]() -> Result<Sides> {
    const attention::RuleQuestion question = refused();
    const auto explained = [=] {
      return explain(question, {}).chosen == attention::Choice::kCudnn;
    };
    const auto asked = [=] {
      return attention::built_in_rules().is_supported(question);
    };
    Sides sides;
    sides.measured = each_of(calls, explained);
    sides.floor = each_of(calls, asked);
    return sides;
  };
  return {{.name = "attention/explain",
           .what = "attention problem -> refusals with remedies",
           .floor = "the rules asked up to the first that refuses",
           .limit = {1, Seconds(1e-3)},
           .prepare = prepare}};
}

}  // namespace kiln::bench
