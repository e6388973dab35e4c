// What the lanes of a warp tell each other, how they part, and how they meet again.

#include "tests/support/test.h"
#include "tests/unit/ptx/whole_kernel.h"

namespace kiln::ptx::test {
namespace {

TEST(Warps, ShufflesReadOtherLanesWithinTheirSegments) {
  const auto body = [](const std::string& how) {
    return "mul.lo.s32 %r3, %r0, 10; shfl.sync." + how + ";" + kStore;
  };
  expect_words(body("bfly.b32 %r2, %r3, 5, 31, -1"), {},
               each_of(32, [](unsigned i) { return 10 * (i ^ 5U); }));
  expect_words(body("idx.b32 %r2, %r3, 7, 31, -1"), {},
               each_of(32, [](unsigned) { return 70; }));
  expect_words(body("up.b32 %r2, %r3, 3, 0, -1"), {},
               each_of(32, [](unsigned i) { return 10 * (i < 3 ? i : i - 3); }));
  // Segments of 8: c is 0x1800 | 31.
  expect_words(body("down.b32 %r2, %r3, 2, 0x181f, -1"), {},
               each_of(32, [](unsigned i) { return 10 * (i % 8 < 6 ? i + 2 : i); }));
  expect_words(body("idx.b32 %r2, %r3, 9, 0x181f, -1"), {},
               each_of(32, [](unsigned i) { return 10 * (i / 8 * 8 + 1); }));
  expect_words("shfl.sync.down.b32 %r3|%p1, %r0, 4, 31, -1; selp.u32 %r2, 1, 0, %p1;" +
                   std::string(kStore),
               {}, each_of(32, [](unsigned i) { return i < 28; }));
}

TEST(Warps, LanesKnowTheirPlaceAndTheLanesAroundThem) {
  const auto of = [](const char* name) {
    return "mov.u32 %r2, %" + (name + (";" + std::string(kStore)));
  };
  expect_words(of("laneid"), {}, each_of(32, [](unsigned i) { return i; }));
  expect_words(of("lanemask_eq"), {}, each_of(32, [](unsigned i) { return 1U << i; }));
  expect_words(of("lanemask_lt"), {},
               each_of(32, [](unsigned i) { return (1U << i) - 1; }));
  expect_words(of("lanemask_ge"), {}, each_of(32, [](unsigned i) { return ~0U << i; }));
}

TEST(Warps, VotesCountTheLanesOfTheMask) {
  const std::string odd = "and.b32 %r3, %r0, 1; setp.eq.u32 %p1, %r3, 1;";
  expect_words(odd + "vote.sync.ballot.b32 %r2, %p1, -1;" + kStore, {},
               each_of(32, [](unsigned) { return 0xaaaaaaaa; }));
  expect_words(
      odd + "vote.sync.any.pred %p2, !%p1, -1; selp.u32 %r2, 1, 0, %p2;" + kStore, {},
      each_of(32, [](unsigned) { return 1; }));
  expect_words(
      odd + "vote.sync.all.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;" + kStore, {},
      each_of(32, [](unsigned) { return 0; }));
  // Each parity by itself.
  expect_words(odd +
                   "selp.b32 %r4, 0xaaaaaaaa, 0x55555555, %p1;"
                   "vote.sync.uni.pred %p2, %p1, %r4; selp.u32 %r2, 1, 0, %p2;" +
                   kStore,
               {}, each_of(32, [](unsigned) { return 1; }));
}

TEST(Warps, MatchesAndReductions) {
  expect_words(
      "and.b32 %r3, %r0, 3; match.any.sync.b32 %r2, %r3, -1;" + std::string(kStore), {},
      each_of(32, [](unsigned i) { return 0x11111111U << (i % 4); }));
  expect_words(
      "and.b32 %r3, %r0, 3; match.all.sync.b32 %r2|%p1, %r3, -1; @%p1 mov.u32 %r2, 5;" +
          std::string(kStore),
      {}, each_of(32, [](unsigned) { return 0; }));
  expect_words("redux.sync.add.s32 %r2, %r0, -1;" + std::string(kStore), {},
               each_of(32, [](unsigned) { return 31 * 16; }));
  expect_words(
      "sub.s32 %r3, %r0, 9; redux.sync.min.s32 %r2, %r3, -1;" + std::string(kStore), {},
      each_of(32, [](unsigned) { return -9; }));
  expect_words("redux.sync.xor.b32 %r2, %r0, 0xff;" + std::string(kStore),
               {.block = {8, 1, 1}, .words = 8},
               each_of(8, [](unsigned) { return 0; }));
}

TEST(Warps, MeetInsideABranchWithTheMaskOfThoseWhoAreThere) {
  expect_words(R"(
    and.b32 %r3, %r0, 1;
    setp.eq.u32 %p1, %r3, 1;
    @%p1 bra ODD;
    shfl.sync.bfly.b32 %r2, %r0, 2, 31, 0x55555555;
    bra.uni DONE;
  ODD:
    shfl.sync.bfly.b32 %r2, %r0, 4, 31, 0xaaaaaaaa;
    add.s32 %r2, %r2, 100;
  DONE:)" + std::string(kStore),
               {}, each_of(32, [](unsigned i) {
                 return i % 2 == 1 ? (i ^ 4U) + 100 : i ^ 2U;
               }));
}

// PTX ISA: the lanes of the mask execute the same instruction with the same mask, not
// one at the same place.
TEST(Warps, MeetFromDifferentPlacesOfTheCode) {
  expect_words(R"(
    mov.u32 %r2, 0;
    setp.lt.u32 %p1, %r0, 16;
    @%p1 bra LOW;
    shfl.sync.bfly.b32 %r2, %r0, 16, 31, -1;
    bra.uni DONE;
  LOW:
    mul.lo.s32 %r3, %r0, 3;
    shfl.sync.bfly.b32 %r2, %r3, 16, 31, -1;
  DONE:)" + std::string(kStore),
               {},
               each_of(32, [](unsigned i) { return i < 16 ? i + 16 : 3 * (i - 16); }));
}

TEST(Warps, ALaneOutsideItsMaskIsAnError) {
  const Outcome outcome = run("vote.sync.ballot.b32 %r2, %p1, 0x7fffffff;");
  EXPECT_EQ(outcome.result, 715);
  EXPECT_THAT(outcome.why,
              AllOf(HasSubstr("thread (31, 0, 0)"), HasSubstr("vote.sync.ballot")));
}

TEST(Warps, AShuffleFromALaneThatTakesNoPartIsNoted) {
  const Outcome outcome =
      run("shfl.sync.idx.b32 %r2, %r0, 20, 31, 0xffff;", {.block = {16, 1, 1}});
  EXPECT_EQ(outcome.result, 0);
  ASSERT_EQ(outcome.report.notes.size(), 1U);
  EXPECT_THAT(outcome.report.notes.begin()->first,
              HasSubstr("takes no part: shfl.sync.idx"));
}

TEST(Warps, LoopsOfDifferentLengthsEndForEachLane) {
  expect_words(R"(
    mov.u32 %r2, 0; mov.u32 %r3, 0;
  LOOP:
    setp.ge.u32 %p1, %r3, %r0;
    @%p1 bra DONE;
    add.s32 %r2, %r2, %r3;
    add.s32 %r3, %r3, 1;
    bra.uni LOOP;
  DONE:)" + std::string(kStore),
               {.block = {64, 1, 1}, .words = 64},
               each_of(64, [](unsigned i) { return i * (i - 1) / 2; }));
}

TEST(Warps, ATableChoosesABranchForEachLane) {
  expect_words(R"(
    and.b32 %r3, %r0, 3;
  ts: .branchtargets A, B, C, A;
    brx.idx %r3, ts;
  A: mov.u32 %r2, 1; bra.uni DONE;
  B: mov.u32 %r2, 2; bra.uni DONE;
  C: mov.u32 %r2, 3;
  DONE:)" + std::string(kStore),
               {}, each_of(32, [](unsigned i) { return i % 4 == 3 ? 1 : i % 4 + 1; }));
}

TEST(Warps, AFunctionCallsItselfToADepthOfEachLane) {
  const std::string factorial = R"(
.func (.param .b32 result) factorial(.param .b32 n)
{
  .reg .b32 %r<6>; .reg .pred %p<2>;
  ld.param.u32 %r1, [n];
  mov.u32 %r2, 1;
  setp.lt.u32 %p1, %r1, 2;
  @%p1 bra DONE;
  sub.s32 %r3, %r1, 1;
  {
    .param .b32 argument; .param .b32 returned;
    st.param.b32 [argument], %r3;
    call.uni (returned), factorial, (argument);
    ld.param.b32 %r4, [returned];
  }
  mul.lo.s32 %r2, %r1, %r4;
DONE:
  st.param.b32 [result], %r2;
  ret;
}
)";
  expect_words(R"(
    and.b32 %r3, %r0, 7;
    { .param .b32 argument; .param .b32 returned;
      st.param.b32 [argument], %r3;
      call.uni (returned), factorial, (argument);
      ld.param.b32 %r2, [returned]; })" +
                   std::string(kStore),
               {.before = factorial}, each_of(32, [](unsigned i) {
                 unsigned product = 1;
                 for (unsigned k = 2; k <= i % 8; ++k) product *= k;
                 return product;
               }));
}

// Each turn a lane of the other half has to go on: lanes that wait take turns.
TEST(Warps, LanesThatMadeTheSameCallMeetInIt) {
  Setting setting{
      .before = ".func f { bar.sync 0; ret; }", .block = {64, 1, 1}, .words = 64};
  expect_words("call f, (); mov.u32 %r2, %r0;" + std::string(kStore), setting,
               each_of(64, [](unsigned i) { return i; }));
}

TEST(Warps, EachOfThreePartsHasItsTurn) {
  // Lane 0 waits for lane 1, and lane 1 for lane 2, which comes last in the code.
  expect_words(R"(
    setp.eq.u32 %p1, %r0, 2; @%p1 bra THIRD;
    setp.eq.u32 %p1, %r0, 1; @%p1 bra SECOND;
    setp.ne.u32 %p1, %r0, 0; @%p1 bra DONE;
  FIRST:
    ld.volatile.global.u32 %r3, [%d0+16]; setp.eq.u32 %p2, %r3, 0; @%p2 bra FIRST;
    bra DONE;
  SECOND:
    ld.volatile.global.u32 %r3, [%d0+20]; setp.eq.u32 %p2, %r3, 0; @%p2 bra SECOND;
    mov.u32 %r3, 1; st.volatile.global.u32 [%d0+16], %r3;
    bra DONE;
  THIRD:
    mov.u32 %r3, 1; st.volatile.global.u32 [%d0+20], %r3;
  DONE:)",
               {.words = 6}, {0, 0, 0, 0, 1, 1});
}

TEST(Warps, WhatIsDroppedChangesNothing) {
  expect_words("match.all.sync.b32 _|%p1, %r1, -1; selp.u32 %r2, %r0, 0, %p1;" +
                   std::string(kStore),
               {}, each_of(32, [](unsigned i) { return i; }));
}

TEST(Warps, ALaneMayWaitForAnotherOfItsWarp) {
  expect_words(R"(
    .shared .align 4 .b32 flag;
    mov.u32 %r3, flag;
    setp.ne.u32 %p1, %r0, 0;
    @!%p1 st.shared.u32 [%r3], 0;
    bar.warp.sync -1;
    setp.eq.u32 %p2, %r0, 31;
    @%p2 bra SET;
  WAIT:
    ld.volatile.shared.u32 %r2, [%r3];
    setp.eq.u32 %p3, %r2, 0;
    @%p3 bra WAIT;
    bra.uni DONE;
  SET:
    mov.u32 %r2, 9;
    st.volatile.shared.u32 [%r3], %r2;
  DONE:)" + std::string(kStore),
               {}, each_of(32, [](unsigned) { return 9; }));
}

TEST(Warps, InlineBlocksHaveNamesAndLabelsOfTheirOwn) {
  expect_words(R"(
    { .reg .b32 t; mov.u32 t, 5; LAB: add.s32 %r2, t, 1; }
    {.reg.b64 t; mov.u64 t, 7; bra.uni LAB; add.s32 %r2, %r2, 100; LAB: cvt.u32.u64 %r3, t; }
    add.s32 %r2, %r2, %r3;)" +
                   std::string(kStore),
               {}, each_of(32, [](unsigned) { return 13; }));
}

TEST(Warps, WhatIsNotRunIsRefusedByName) {
  EXPECT_THAT(refusal_of("tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d1, {%f0, %f1}];"),
              AllOf(HasSubstr("tex.2d"), HasSubstr("is not run here")));
  EXPECT_THAT(refusal_of("wgmma.fence.sync.aligned;"),
              AllOf(HasSubstr("wgmma.fence"), HasSubstr("is not run here")));
  EXPECT_THAT(refusal_of("add.unheard.s32 %r2, %r0, 1;"),
              HasSubstr(".unheard is not known"));
  EXPECT_THAT(refusal_of("add.s32 %r2, %r99, 1;"), HasSubstr("%r99 is not known"));
  EXPECT_THAT(refusal_of("cp.async.bulk.commit_group;"), HasSubstr("bulk copies"));
  EXPECT_THAT(refusal_of("bra NOWHERE;"), HasSubstr("NOWHERE is no label"));
  EXPECT_THAT(refusal_of("mov.u32 %r2, %envreg1;"), HasSubstr("%envreg1 is not known"));
}

}  // namespace
}  // namespace kiln::ptx::test
