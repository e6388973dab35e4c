// mbarrier: phases, counts, bytes, copies, and what it orders.

#include "tests/support/test.h"
#include "tests/unit/ptx/whole_kernel.h"

namespace kiln::ptx::test {
namespace {

/// 64 threads with an mbarrier for `count` of them; %r5 is its address, %r4 that of the
/// thread's own word of 64, %r6 that of its opposite.
std::string with_barrier(unsigned count, const std::string& body) {
  return fmt::format(R"(
    .shared .align 8 .b64 bar; .shared .align 4 .b8 x[256];
    mov.u32 %r5, bar; mov.u32 %r3, x; mad.lo.s32 %r4, %r0, 4, %r3;
    sub.s32 %r6, 63, %r0; mad.lo.s32 %r6, %r6, 4, %r3;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared.b64 [%r5], {};
    bar.sync 0;
)",
                     count) +
         body;
}
Setting two_warps() {
  return {.block = {64, 1, 1}, .words = 64};
}

TEST(Mbarriers, AllPhasesAreWaitedFor) {
  // Each round reads what its opposite wrote in that round.
  const std::string body = with_barrier(64, R"(
    mov.u32 %r10, 0; mov.u32 %r2, 0;
  ROUND:
    mad.lo.s32 %r11, %r10, 100, %r0;
    st.shared.u32 [%r4], %r11;
    mbarrier.arrive.shared.b64 %d5, [%r5];
  FIRST:
    mbarrier.test_wait.shared.b64 %p2, [%r5], %d5;
    @!%p2 bra FIRST;
    ld.shared.u32 %r12, [%r6];
    add.s32 %r2, %r2, %r12;
    mbarrier.arrive.shared.b64 %d5, [%r5];
  SECOND:
    mbarrier.try_wait.shared.b64 %p2, [%r5], %d5;
    @!%p2 bra SECOND;
    add.s32 %r10, %r10, 1;
    setp.lt.u32 %p3, %r10, 5;
    @%p3 bra ROUND;)") + kStore;
  expect_words(body, two_warps(),
               each_of(64, [](unsigned i) { return 1000 + 5 * (63 - i); }));
  Setting checked = two_warps();
  checked.checks.races = true;
  EXPECT_THAT(run(body, checked).report.notes, IsEmpty());
}

TEST(Mbarriers, AnArrivalThatIsNotWaitedForOrdersNothing) {
  Setting checked = two_warps();
  checked.checks.races = true;
  EXPECT_THAT(run(with_barrier(64, R"(
    st.shared.u32 [%r4], %r0;
    mbarrier.arrive.shared.b64 _, [%r5];
    ld.shared.u32 %r2, [%r6];)"),
                  checked)
                  .report.notes,
              Not(IsEmpty()));
}

TEST(Mbarriers, APhaseIsToldByItsParity) {
  expect_words(with_barrier(64, R"(
    mbarrier.test_wait.parity.shared.b64 %p2, [%r5], 1;
    selp.u32 %r2, 1, 0, %p2;
    bar.sync 0;
    mbarrier.arrive.shared.b64 _, [%r5];
  WAIT:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0;
    @!%p2 bra WAIT;
    mbarrier.test_wait.parity.shared.b64 %p2, [%r5], 1;
    @%p2 add.u32 %r2, %r2, 10;)") +
                   kStore,
               two_warps(), each_of(64, [](unsigned) { return 1; }));
}

TEST(Mbarriers, CountArrivalsBytesAndThoseWhoLeave) {
  // One thread does it all: 6 are due, and 16 bytes.
  expect_words(with_barrier(6, R"(
    @!%p1 bra DONE;
    mbarrier.arrive.noComplete.shared.b64 %d5, [%r5], 2;
    mbarrier.pending_count.b64 %r10, %d5;
    mbarrier.arrive_drop.shared.b64 %d5, [%r5];
    mbarrier.pending_count.b64 %r11, %d5;
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r5], 16;
    mbarrier.arrive.shared.b64 %d5, [%r5], 3;
    mbarrier.test_wait.shared.b64 %p2, [%r5], %d5;
    selp.u32 %r12, 1, 0, %p2;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r5], 16;
    mbarrier.test_wait.shared.b64 %p2, [%r5], %d5;
    selp.u32 %r13, 1, 0, %p2;
    mbarrier.arrive.shared.b64 %d5, [%r5];
    mbarrier.pending_count.b64 %r14, %d5;
    mbarrier.inval.shared.b64 [%r5];
    st.global.v4.u32 [%d0], {%r10, %r11, %r12, %r13};
    st.global.u32 [%d0+16], %r14;
  DONE:)"),
               {.block = {64, 1, 1}, .words = 5}, {6, 4, 0, 1, 5});
}

TEST(Mbarriers, TrackAsynchronousCopies) {
  const auto copied = [](const std::string& wait) {
    return with_barrier(64, R"(
    mul.wide.u32 %d4, %r0, 4; add.s64 %d4, %d0, %d4;
    add.u32 %r10, %r0, 500;
    st.global.u32 [%d4], %r10; bar.sync 0;
    cp.async.ca.shared.global [%r4], [%d4], 4;)") +
           wait + R"(
    ld.shared.u32 %r2, [%r6];)" +
           kStore;
  };
  for (const char* arrives : {"cp.async.mbarrier.arrive.noinc.shared.b64 [%r5];",
                              "cp.async.mbarrier.arrive.shared.b64 [%r5];"
                              "mbarrier.arrive.shared.b64 _, [%r5];"})
    expect_words(copied(arrives + std::string(R"(
  WAIT:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0;
    @!%p2 bra WAIT;)")),
                 two_warps(), each_of(64, [](unsigned i) { return 563 - i; }));
  // Nobody waits: they have not landed.
  Setting checked = two_warps();
  checked.checks.unset = true;
  const auto notes =
      run(copied("cp.async.mbarrier.arrive.noinc.shared.b64 [%r5]; bar.sync 0;"),
          checked)
          .report.notes;
  ASSERT_FALSE(notes.empty());
  EXPECT_THAT(notes.begin()->first, HasSubstr("a block ends while copies"));
  EXPECT_THAT(notes.rbegin()->first, HasSubstr("that was never written"));
}

TEST(Mbarriers, CopiesThatAreWaitedForAreNoRace) {
  Setting checked = two_warps();
  checked.checks.races = true;
  // The second warp reads what the first one copies, and only the copies arrive.
  EXPECT_THAT(run(with_barrier(32, R"(
    mul.wide.u32 %d4, %r0, 4; add.s64 %d4, %d0, %d4;
    setp.lt.u32 %p3, %r0, 32;
    @%p3 cp.async.ca.shared.global [%r4], [%d4], 4;
    @%p3 cp.async.mbarrier.arrive.noinc.shared.b64 [%r5];
    @%p3 bra DONE;
  WAIT:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0;
    @!%p2 bra WAIT;
    ld.shared.u32 %r2, [%r6];
  DONE:)"),
                  checked)
                  .report.notes,
              IsEmpty());
}

TEST(Mbarriers, WithinAWarpOnlyThoseWhoArrivedAreBefore) {
  Setting checked = two_warps();
  checked.checks.races = true;
  const auto notes = [&](const std::string& guard) {
    return run(with_barrier(1, R"(
    st.shared.u32 [%r4], %r0;)" + guard +
                                   R"(
    mbarrier.arrive.shared.b64 _, [%r5];
  WAIT:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0;
    @!%p2 bra WAIT;
    xor.b32 %r7, %r4, 4;
    ld.shared.u32 %r2, [%r7];)"),
               checked)
        .report.notes;
  };
  EXPECT_THAT(notes("@%p1"), Not(IsEmpty()));
  EXPECT_THAT(notes("bar.sync 0; @%p1"), IsEmpty());
}

TEST(Mbarriers, BytesMayCompleteBeforeTheyAreExpected) {
  expect_words(with_barrier(1, R"(
    @!%p1 bra DONE;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r5], 64;
    mbarrier.arrive.expect_tx.shared.b64 %d5, [%r5], 96;
    mbarrier.test_wait.shared.b64 %p2, [%r5], %d5;
    selp.u32 %r10, 1, 0, %p2;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r5], 32;
    mbarrier.test_wait.shared.b64 %p2, [%r5], %d5;
    selp.u32 %r11, 1, 0, %p2;
    st.global.v2.u32 [%d0], {%r10, %r11};
  DONE:)"),
               {.block = {64, 1, 1}, .words = 2}, {0, 1});
}

TEST(Mbarriers, MoreThanIsDueIsAnError) {
  const auto why = [](const std::string& body) {
    const Outcome outcome = run(with_barrier(2, body), two_warps());
    EXPECT_EQ(outcome.result, 715) << body;
    return outcome.why;
  };
  EXPECT_THAT(why("mbarrier.arrive.shared.b64 _, [%r5], 3;"),
              HasSubstr("more than an mbarrier waits for, by thread ("));
  EXPECT_THAT(why("mbarrier.arrive.noComplete.shared.b64 %d5, [%r5], 2;"),
              HasSubstr("ends a phase"));
  EXPECT_THAT(why("mbarrier.init.shared.b64 [%r5], 0;"), HasSubstr("of no thread"));
  EXPECT_THAT(why("mbarrier.init.b64 [%d0], 1;"),
              HasSubstr("outside of shared memory"));
}

}  // namespace
}  // namespace kiln::ptx::test
