// Kiln's attention kernels as NVRTC compiles them for several architectures, against
// the references of their family, in several orders; and each damage to them is found.

#include <gmock/gmock.h>

#include <regex>

#include "ops/attention.h"
#include "tests/integration/attention_kernel/check.h"
#include "tests/integration/ptx/run_as_ptx.h"
#include "util/try.h"

namespace kiln::attention_test {
namespace {

using test::Bf16;
using test::F16;
using test::F32;

// How the next calls run.
// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
kiln_cpu::RunOptions how;
ptx::Report report;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

Result<void> run_call(const ops::AttentionCall& call, const Setting& setting) {
  const Device device{
      .name = "planned", .capability = setting.capability, .multiprocessors = 4};
  const auto plan = KILN_TRY(ops::plan(call, device));
  kiln_cpu::RunOptions options = how;
  options.capability = setting.capability;
  return test::run_as_ptx(plan, options, report);
}

namespace {

class AttentionAsPtx : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::can_compile_ptx())
      GTEST_SKIP() << "no NVRTC on this machine";
    how = {};
    report = {};
  }
};

Problem problem(ops::DType dtype, I64 dim, Mask mask = Mask::kCausalBottomRight) {
  return test::problem_of(dtype, {1, 2, 70, dim}, {1, 1, 90, dim}, {.mask = mask});
}

template <typename T>
void check_in_orders(const Problem& of, ComputeCapability capability) {
  for (unsigned seed = 0; seed < (test::is_whole() ? 12 : 3); ++seed) {
    SCOPED_TRACE(testing::Message() << capability.major << "." << capability.minor
                                    << ", dim " << of.dqk << ", seed " << seed);
    how.schedule = {.seed = seed, .splits_warps = seed != 0, .is_noisy = seed != 0};
    how.checks = {.races = seed % 3 == 1};
    Call<T> call(of, {.capability = capability});
    call.run_both();
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    check(call, true);
    EXPECT_THAT(report.notes, testing::IsEmpty());
  }
}

TEST_F(AttentionAsPtx, IsRightFor75) {
  check_in_orders<F16>(problem(ops::DType::kF16, 64), {7, 5});
  check_in_orders<Bf16>(problem(ops::DType::kBf16, 64), {7, 5});
}
TEST_F(AttentionAsPtx, IsRightFor90) {
  check_in_orders<Bf16>(problem(ops::DType::kBf16, 64), {9, 0});
  check_in_orders<F16>(problem(ops::DType::kF16, 128, Mask::kNone), {9, 0});
}
TEST_F(AttentionAsPtx, IsRightFor100) {
  check_in_orders<F16>(problem(ops::DType::kF16, 64), {10, 0});
  check_in_orders<F32>(problem(ops::DType::kF32, 64), {10, 0});
}
TEST_F(AttentionAsPtx, IsRightFor120) {
  check_in_orders<Bf16>(problem(ops::DType::kBf16, 128), {12, 0});
}

TEST_F(AttentionAsPtx, SharedMemoryHasNoBankConflict) {
  for (const I64 dim : {64, 128}) {
    how = {.checks = {.conflicts = true}};
    report = {};
    Call<Bf16> call(problem(ops::DType::kBf16, dim), {.capability = {8, 0}});
    call.run_both();
    std::size_t accesses = 0;
    for (const auto& [text, traffic] : report.traffic) {
      accesses += traffic.wavefronts != 0 ? 1 : 0;
      EXPECT_EQ(traffic.wavefronts, traffic.least_wavefronts)
          << "dim " << dim << ": " << text;
    }
    EXPECT_GT(accesses, 20U);
  }
}

/// A damaged form of each place that `pattern` finds.
struct Damage {
  std::string name;
  std::string pattern;
  std::string replacement;
};

// What the kernels make of the statements; prelude_as_ptx_test.cc damages each of them.
std::vector<Damage> damages() {
  const std::string four = R"(\{(%\w+), (%\w+), (%\w+), (%\w+)\})";
  const std::string mma = "(mma\\.sync\\S+)\\s+" + four + ",\\s*" + four +
                          R"(,\s*\{(%\w+), (%\w+)\},\s*)" + four;
  return {
      {"ldmatrix with two registers exchanged", "(ldmatrix\\S+)\\s+" + four,
       "$1 {$3, $2, $4, $5}"},
      {"mma with b0 and b1 exchanged", mma,
       "$1 {$2, $3, $4, $5}, {$6, $7, $8, $9}, {$11, $10}, {$12, $13, $14, $15}"},
      {"mma with c0 and c1 exchanged", mma,
       "$1 {$2, $3, $4, $5}, {$6, $7, $8, $9}, {$10, $11}, {$13, $12, $14, $15}"},
      {"cp.async that never copies",
       R"((cp\.async\.cg\S+\s+\[[^\]]+\], \[[^\]]+\], 16), %\w+)", "$1, 0"},
      {"cp.async without wait", R"(cp\.async\.wait_group \d+;)", ""},
      {"shuffles from another lane",
       R"((shfl\.sync\.bfly\.b32\s+%\w+\|%\w+, %\w+), %\w+, (%\w+), (%\w+))",
       "$1, 8, $2, $3"},
      {"without barriers of warps", R"(bar\.warp\.sync\s+-1;)", ""},
      {"without barriers", R"(bar\.sync\s+0;)", ""},
  };
}

/// o and the gradients, as bits.
std::vector<std::uint16_t> results_of(const Call<Bf16>& call) {
  std::vector<std::uint16_t> all;
  for (const auto* tensor : {&call.o, &call.grad_q, &call.grad_k, &call.grad_v}) {
    for (const Bf16& element : *tensor) all.push_back(element.bits);
  }
  return all;
}

/// Both passes; a fault is its text, and ends them.
std::string run_damaged(Call<Bf16>& call) {
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    call.problem.pass = pass;
    call.problem.training = pass == Pass::kBackward;
    call.problem.stats = pass == Pass::kForward;
    const auto done = run_call({call.problem, call.tensors()}, call.setting);
    if (!done)
      return done.error().message;
  }
  return "";
}

TEST_F(AttentionAsPtx, EachDamageIsFound) {
  const Problem of = problem(ops::DType::kBf16, 64);
  const Setting setting{.capability = {8, 0}};
  how.schedule = {.seed = 3, .splits_warps = true};
  how.checks = {.races = true};
  Call<Bf16> good(of, setting);
  ASSERT_EQ(run_damaged(good), "");
  ASSERT_THAT(report.notes, testing::IsEmpty());
  const auto wanted = results_of(good);
  for (const Damage& damage : damages()) {
    std::size_t places = 0;
    const std::regex pattern(damage.pattern);
    how.edit = [&](const std::string& text) {
      places += static_cast<std::size_t>(
          std::distance(std::sregex_iterator(text.begin(), text.end(), pattern),
                        std::sregex_iterator()));
      return std::regex_replace(text, pattern, damage.replacement);
    };
    how.schedule.limit = 20'000'000;
    report = {};
    Call<Bf16> call(of, setting);
    std::string found = run_damaged(call);
    if (found.empty() && results_of(call) != wanted)
      found = "the results";
    if (found.empty() && !report.notes.empty())
      found = report.notes.begin()->first;
    EXPECT_GT(places, 0U) << damage.name << " is nowhere";
    EXPECT_NE(found, "") << damage.name << " is not found";
    std::cout << damage.name << ": " << places << " places, found by "
              << found.substr(0, 80) << "\n";
  }
}

}  // namespace
}  // namespace kiln::attention_test
