// A million instructions of warps in the interpreter of PTX: of arithmetic, and of the
// mix that attention has, with bounds checked alone and with everything checked.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/rows.h"
#include "tests/support/ptx/arena.h"
#include "util/try.h"

namespace kiln::bench {
namespace {

constexpr unsigned kTurns = 200;
constexpr unsigned kWarps = 4;
constexpr std::uint64_t kMillion = 1'000'000;

/// kTurns times `body`; %a0 is the thread's place in shared memory, of 16 bytes.
std::string kernel_with(const std::string& body) {
  return R"(.version 9.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .f32 %f<40>;
  .reg .b32 %r<40>;
  .reg .b32 %a<4>;
  .reg .b64 %o<3>;
  .reg .pred %p<4>;
  .shared .align 16 .b8 room[8192];
  ld.param.u64 %o0, [out];
  mov.u32 %r0, %tid.x;
  shl.b32 %a1, %r0, 4;
  mov.u32 %a0, room;
  add.s32 %a0, %a0, %a1;
  cvt.rn.f32.u32 %f0, %r0;
  st.shared.v4.f32 [%a0], {%f0, %f0, %f0, %f0};
  bar.sync 0;
  mov.u32 %r1, 0;
LOOP:
)" + body +
         R"(
  add.s32 %r1, %r1, 1;
  setp.lt.u32 %p0, %r1, )" +
         std::to_string(kTurns) + R"(;
  @%p0 bra LOOP;
  mul.wide.u32 %o1, %r0, 4;
  add.s64 %o0, %o0, %o1;
  st.global.f32 [%o0], %f1;
  ret;
}
)";
}

std::string arithmetic() {
  std::string body;
  for (int i = 0; i < 6; ++i)
    body +=
        "fma.rn.f32 %f1, %f0, 0f3F000000, %f2; mul.f32 %f2, %f1, 0f3F000000;"
        "add.f32 %f3, %f1, %f2; mad.lo.s32 %r2, %r1, 3, %r0; and.b32 %r3, %r2, 255;"
        "max.f32 %f4, %f3, %f1; setp.gt.f32 %p1, %f4, 0f00000000;"
        "selp.f32 %f0, %f3, %f4, %p1;\n";
  return body + "ld.shared.f32 %f5, [%a0]; shfl.sync.bfly.b32 %r4, %r3, 1, 31, -1;\n";
}

/// A fifth products of matrices, a tenth loads of them.
std::string attention() {
  std::string body;
  for (int i = 0; i < 4; ++i)
    body +=
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%a0];"
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f10, %f11, %f12, %f13},"
        " {%r10, %r11, %r12, %r13}, {%r10, %r11}, {%f10, %f11, %f12, %f13};"
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f14, %f15, %f16, %f17},"
        " {%r10, %r11, %r12, %r13}, {%r12, %r13}, {%f14, %f15, %f16, %f17};"
        "mul.f32 %f1, %f10, 0f3F000000; ex2.approx.ftz.f32 %f2, %f1;"
        "add.f32 %f3, %f2, %f3; cvt.rn.bf16x2.f32 %r14, %f2, %f3; fma.rn.f32 %f4, %f1, "
        "%f2, %f3;"
        "max.f32 %f5, %f4, %f1; sub.f32 %f6, %f5, %f4;\n";
  return body;
}

Result<Seconds> run(const ptx::Program& program, const ptx::Schedule& schedule,
                    const ptx::Checks& checks) {
  ptx::Arena arena;
  ptx::Parameters parameters;
  parameters.add(arena.reserve(sizeof(float) * kWarps * ptx::kLanes));
  std::uint64_t instructions = 0;
  Seconds time{0};
  while (instructions < kMillion / 5) {
    ptx::Report report;
    time += KILN_TRY(timed([&]() -> Result<void> {
      const auto done = ptx::launch(program,
                                    {.entry = "k",
                                     .block = {kWarps * ptx::kLanes, 1, 1},
                                     .parameters = parameters.bytes()},
                                    {}, arena, schedule, checks, report);
      return done ? Result<void>() : fail(ErrorCode::kUnavailable, done.error().why);
    }));
    instructions += report.instructions;
  }
  return time * (static_cast<double>(kMillion) / static_cast<double>(instructions));
}

Row row(const std::string& name, const std::string& what, const std::string& body,
        bool checks_all) {
  return {.name = "ptx/" + name,
          .what = "10^6 PTX instructions, " + what,
          .limit = {1, Seconds(checks_all ? 1.0 : 0.2)},
          .prepare = [=]() -> Result<Sides> {
            auto program = ptx::decode(kernel_with(body));
            if (!program)
              return fail(ErrorCode::kUnavailable, program.error());
            return Sides{.measured = [=, code = *std::move(program)] {
              return run(*code, {.seed = checks_all ? 1U : 0U, .is_noisy = checks_all},
                         {.unset = checks_all, .races = checks_all});
            }};
          }};
}

}  // namespace

std::vector<Row> interpreter_rows(const Settings& /*settings*/) {
  return {row("arithmetic", "arithmetic", arithmetic(), false),
          row("attention", "attention's mix", attention(), false),
          row("attention/checked", "the same, all checked", attention(), true)};
}

}  // namespace kiln::bench
