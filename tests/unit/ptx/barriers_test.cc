// Barriers, asynchronous copies, blocks side by side, and races between accesses that
// no barrier separates.

#include "tests/support/test.h"
#include "tests/unit/ptx/whole_kernel.h"

namespace kiln::ptx::test {
namespace {

// Each thread writes its number and reads that of its opposite.
std::string reversed(const std::string& barrier, unsigned threads = 128) {
  return fmt::format(R"(
    .shared .align 4 .b8 x[{0}];
    mov.u32 %r3, x; shl.b32 %r4, %r0, 2; add.s32 %r5, %r3, %r4;
    st.shared.u32 [%r5], %r0;
    {2}
    sub.s32 %r6, {1}, %r4; add.s32 %r6, %r6, %r3;
    ld.shared.u32 %r2, [%r6];)",
                     4 * threads, 4 * (threads - 1), barrier) +
         kStore;
}
const Setting kFourWarps{.block = {128, 1, 1}, .words = 128};

TEST(Barriers, SeparateWhatIsBeforeFromWhatIsBehind) {
  expect_words(reversed("bar.sync 0;"), kFourWarps,
               each_of(128, [](unsigned i) { return 127 - i; }));
  expect_words(reversed("barrier.sync.aligned 3, 128;"), kFourWarps,
               each_of(128, [](unsigned i) { return 127 - i; }));
  expect_words(reversed("barrier.sync 1;"), kFourWarps,
               each_of(128, [](unsigned i) { return 127 - i; }));
}

TEST(Barriers, AMissingOneIsSeenUnderSomeOrderAndAsARace) {
  bool is_seen = false;
  for (unsigned seed = 1; seed < 12 && !is_seen; ++seed) {
    Setting setting = kFourWarps;
    setting.schedule.seed = seed;
    is_seen = run(reversed(""), setting).words !=
              each_of(128, [](unsigned i) { return 127 - i; });
  }
  EXPECT_TRUE(is_seen);
  Setting checked = kFourWarps;
  checked.checks.races = true;
  const auto notes = run(reversed(""), checked).report.notes;
  ASSERT_FALSE(notes.empty());
  EXPECT_THAT(notes.begin()->first, AllOf(HasSubstr("race in shared memory"),
                                          HasSubstr("st.shared.u32 [%r5], %r0;"),
                                          HasSubstr("ld.shared.u32 %r2, [%r6];")));
  EXPECT_THAT(run(reversed("bar.sync 0;"), checked).report.notes, IsEmpty());
}

TEST(Barriers, WithinAWarpItsOwnSeparates) {
  const auto body = [](const std::string& barrier) { return reversed(barrier, 32); };
  Setting checked;
  checked.checks.races = true;
  EXPECT_FALSE(run(body(""), checked).report.notes.empty());
  EXPECT_THAT(run(body("bar.warp.sync -1;"), checked).report.notes, IsEmpty());
  expect_words(body("bar.warp.sync -1;"), {},
               each_of(32, [](unsigned i) { return 31 - i; }));
}

TEST(Barriers, BytesAndHalvesRaceAsWordsDo) {
  // Each thread writes its own part, and reads that of the thread `other` ahead.
  const auto notes = [](unsigned bytes, unsigned other, const std::string& barrier) {
    Setting checked = kFourWarps;
    checked.checks.races = true;
    return run(fmt::format(R"(
    .shared .align 4 .b8 x[1024];
    mov.u32 %r3, x; mad.lo.s32 %r4, %r0, {0}, %r3;
    cvt.u16.u32 %h1, %r0;
    st.shared.u{1} [%r4], %h1;
    {3}
    ld.shared.u{1} %h2, [%r4+{2}];)",
                           bytes, 8 * bytes, bytes * other, barrier),
               checked)
        .report.notes;
  };
  for (const unsigned bytes : {1U, 2U}) {
    EXPECT_THAT(notes(bytes, 0, ""), IsEmpty()) << bytes;
    EXPECT_THAT(notes(bytes, 1, ""), Not(IsEmpty())) << bytes;
    EXPECT_THAT(notes(bytes, 1, "bar.sync 0;"), IsEmpty()) << bytes;
  }
}

TEST(Barriers, WordsRaceWithTheirBytes) {
  // Each thread stores with `store` at its own word, and loads from the next one.
  const auto notes = [](const std::string& store, const std::string& load) {
    Setting checked = kFourWarps;
    checked.checks.races = true;
    return run(R"(
    .shared .align 4 .b8 x[1024];
    mov.u32 %r3, x; mad.lo.s32 %r4, %r0, 4, %r3; cvt.u16.u32 %h1, %r0;)" +
                   store + load,
               checked)
        .report.notes;
  };
  const std::string word = "st.shared.u32 [%r4], %r0;";
  const std::string byte = "st.shared.u8 [%r4+1], %h1;";
  EXPECT_THAT(notes(word, "ld.shared.u8 %h2, [%r4+6];"), Not(IsEmpty()));
  EXPECT_THAT(notes(word, "ld.shared.u8 %h2, [%r4+2];"), IsEmpty());
  EXPECT_THAT(notes(byte, "ld.shared.u32 %r5, [%r4+4];"), Not(IsEmpty()));
  EXPECT_THAT(notes(byte, "ld.shared.u8 %h2, [%r4+6];"), IsEmpty());
}

TEST(Barriers, AnArrivalOrdersWhatIsBeforeItAlone) {
  // The first warp arrives at a barrier that the second one waits at.
  const auto notes = [](const std::string& first) {
    Setting checked{.block = {64, 1, 1}, .words = 64};
    checked.checks.races = true;
    return run(R"(
    .shared .align 4 .b8 x[4];
    setp.ge.u32 %p1, %r0, 32;
    setp.eq.u32 %p2, %r0, 0;
    @%p1 bra SECOND;)" +
                   first + R"(
    bra DONE;
  SECOND:
    bar.sync 1, 64;
    ld.shared.u32 %r2, [x];
  DONE:)",
               checked)
        .report.notes;
  };
  EXPECT_THAT(notes("@%p2 st.shared.u32 [x], %r0; bar.arrive 1, 64;"), IsEmpty());
  EXPECT_THAT(notes("bar.arrive 1, 64; @%p2 st.shared.u32 [x], %r0;"), Not(IsEmpty()));
}

TEST(Barriers, CopiesOfPartsAndWithAPolicyReadThatPart) {
  // The last 4 of 16 bytes at the end of memory; the others become zeros.
  const auto copied = [](const std::string& how, const std::string& sizes) {
    return run(R"(
    .shared .align 16 .b8 x[16];
    setp.ne.u32 %p1, %r0, 0; @%p1 bra DONE;
    createpolicy.fractional.L2::evict_first.b64 %d3, 1.0;
    mov.u32 %r3, 0x1234; st.global.u32 [%d0+16], %r3;
    cp.async.cg.shared.global)" +
                   how + " [x], [%d0+16], 16" + sizes + R"(;
    cp.async.wait_all;
    ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [x];
    st.global.v4.u32 [%d0], {%r4, %r5, %r6, %r7};
  DONE:)",
               {.words = 5})
        .words;
  };
  const std::vector<std::uint32_t> wanted{0x1234, 0, 0, 0, 0x1234};
  EXPECT_EQ(copied("", ", 4"), wanted);
  EXPECT_EQ(copied(".L2::cache_hint", ", 4, %d3"), wanted);
  EXPECT_THAT(refusal_of("cp.async.ca.shared.global [%r1], [%d0], 12;"),
              HasSubstr("a copy is of 4, 8 or 16 bytes"));
}

TEST(Barriers, ReduceAPredicateOfAllThreads) {
  expect_words(
      "setp.lt.u32 %p1, %r0, 70; bar.red.popc.u32 %r2, 0, %p1;" + std::string(kStore),
      kFourWarps, each_of(128, [](unsigned) { return 70; }));
  expect_words(
      "setp.lt.u32 %p1, %r0, 70; bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, "
      "%p1;"
      "selp.u32 %r2, 1, 0, %p2; @%p3 add.s32 %r2, %r2, 2;" +
          std::string(kStore),
      kFourWarps, each_of(128, [](unsigned) { return 2; }));
}

TEST(Barriers, AProducerArrivesAndConsumersWait) {
  expect_words(R"(
    .shared .align 4 .b32 x;
    setp.ge.u32 %p1, %r0, 32;
    @%p1 bra WAIT;
    mov.u32 %r2, 41; st.shared.u32 [x], %r2;
    bar.arrive 1, 128;
    bra.uni DONE;
  WAIT:
    bar.sync 1, 128;
    ld.shared.u32 %r2, [x];
  DONE:)" + std::string(kStore),
               kFourWarps, each_of(128, [](unsigned) { return 41; }));
}

// Lanes come to the barrier from behind it, too, in a loop that they part in.
TEST(Barriers, LanesMeetAtOneInALoop) {
  expect_words(R"(
    mov.u32 %r2, 0; mov.u32 %r3, 0;
  LOOP:
    bar.sync 0;
    and.b32 %r4, %r0, 1;
    setp.eq.u32 %p1, %r4, 0;
    @%p1 bra EVEN;
    add.s32 %r2, %r2, 2;
  EVEN:
    add.s32 %r2, %r2, 1;
    add.s32 %r3, %r3, 1;
    setp.lt.u32 %p2, %r3, 20;
    @%p2 bra LOOP;)" +
                   std::string(kStore),
               kFourWarps,
               each_of(128, [](unsigned i) { return i % 2 == 1 ? 60 : 20; }));
}

TEST(Barriers, AThreadThatHasLeftIsNotWaitedFor) {
  expect_words(R"(
    .shared .align 4 .b8 x[256];
    mov.u32 %r3, x; mad.lo.s32 %r4, %r0, 4, %r3;
    st.shared.u32 [%r4], %r0;
    setp.ge.u32 %p1, %r0, 40;
    @%p1 ret;
    bar.sync 0;
    sub.s32 %r5, 63, %r0; mad.lo.s32 %r4, %r5, 4, %r3;
    ld.shared.u32 %r2, [%r4];)" +
                   std::string(kStore),
               {.block = {64, 1, 1}, .words = 64},
               each_of(64, [](unsigned i) { return i < 40 ? 63 - i : 0; }));
}

TEST(Barriers, OneThatSomeNeverReachIsADeadlockWithNames) {
  const Outcome outcome = run(R"(
    setp.lt.u32 %p1, %r0, 16;
    @%p1 bra DONE;
    bar.sync 0;
  DONE:
    bar.warp.sync -1;)");
  EXPECT_EQ(outcome.result, 702);
  EXPECT_THAT(outcome.why, AllOf(HasSubstr("deadlock: block (0, 0, 0): "),
                                 HasSubstr("lanes 0xffff0000: bar.sync 0;"),
                                 HasSubstr("lanes 0x0000ffff: bar.warp.sync -1;")));
}

TEST(Barriers, ABlockMayWaitForAnother) {
  // The first waits for the flag of the last.
  expect_words(R"(
    mov.u32 %r2, 1;
    setp.eq.u32 %p1, %r1, 19;
    @%p1 st.volatile.global.u32 [%d0+80], %r2;
    setp.ne.u32 %p2, %r1, 0;
    @%p2 bra DONE;
  WAIT:
    ld.volatile.global.u32 %r3, [%d0+80];
    setp.eq.u32 %p3, %r3, 0;
    @%p3 bra WAIT;
  DONE:)" + std::string(kStore),
               {.grid = {20, 1, 1}, .block = {1, 1, 1}, .words = 21},
               each_of(21, [](unsigned) { return 1; }));
}

TEST(Barriers, WithoutAnEndALaunchEndsAtItsLimit) {
  const Outcome outcome = run("AGAIN: bra AGAIN;", {.schedule = {.limit = 100'000}});
  EXPECT_EQ(outcome.result, 702);
  EXPECT_THAT(outcome.why, HasSubstr("and not ended"));
}

// Copies 16 bytes a thread from %d0 to shared memory; then `wait`, a barrier, and the
// first word of the neighbour.
std::string copied(const std::string& size, const std::string& wait) {
  return R"(
    .shared .align 16 .b8 x[512];
    mov.u32 %r3, x; shl.b32 %r4, %r0, 4; add.s32 %r5, %r3, %r4;
    mul.wide.u32 %d1, %r0, 16; add.s64 %d2, %d0, %d1;
    add.s32 %r7, %r0, 1; st.global.v4.u32 [%d2], {%r7, %r7, %r7, %r7};
    cp.async.cg.shared.global [%r5], [%d2], 16)" +
         size + R"(;
    cp.async.commit_group;)" +
         wait + R"(
    bar.sync 0;
    xor.b32 %r6, %r5, 16;
    ld.shared.u32 %r2, [%r6];)" +
         kStore;
}

TEST(Copies, LandWhenTheyAreWaitedFor) {
  const auto words = [](const Outcome& outcome) {
    return std::vector<std::uint32_t>(outcome.words.begin(), outcome.words.begin() + 4);
  };
  const Setting setting{.words = 128, .checks = {.unset = true}};
  const Outcome good = run(copied("", "cp.async.wait_group 0;"), setting);
  EXPECT_EQ(words(good), (std::vector<std::uint32_t>{2, 1, 4, 3}));
  EXPECT_THAT(good.report.notes, IsEmpty());
  for (const char* wait : {"", "cp.async.wait_group 1;"}) {
    const Outcome bad = run(copied("", wait), setting);
    EXPECT_EQ(bad.words[0], 0xffffffff) << wait;
    EXPECT_FALSE(bad.report.notes.empty());
  }
  Setting at_once = setting;
  at_once.schedule.delays_copies = false;
  EXPECT_EQ(words(run(copied("", ""), at_once)),
            (std::vector<std::uint32_t>{2, 1, 4, 3}));
}

TEST(Copies, FillWithZerosWhatTheirSourceLacks) {
  const Setting setting{.words = 128};
  EXPECT_EQ(run(copied(", 4", "cp.async.wait_all;"), setting).words[0], 2U);
  EXPECT_EQ(run(copied(", 0", "cp.async.wait_all;"), setting).words[0], 0U);
}

}  // namespace
}  // namespace kiln::ptx::test
