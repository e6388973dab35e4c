// Memory of each space: what accesses do, and what is wrong with them.

#include "tests/support/test.h"
#include "tests/unit/ptx/whole_kernel.h"

namespace kiln::ptx::test {
namespace {

TEST(Memory, NarrowLoadsExtendAsTheirTypeSays) {
  const std::string body = R"(
    .shared .align 4 .b32 x;
    mov.u32 %r3, 0xfedc8081;
    st.shared.u32 [x], %r3;
    ld.shared.s8 %r4, [x];
    ld.shared.u8 %r5, [x+1];
    ld.shared.s16 %r6, [x];
    ld.shared.u16 %h1, [x+2]; cvt.u32.u16 %r7, %h1;
    st.global.u32 [%d0], %r4; st.global.u32 [%d0+4], %r5;
    st.global.u32 [%d0+8], %r6; st.global.u32 [%d0+12], %r7;
    st.global.u8 [%d0+16], %r3; st.global.u16 [%d0+18], %r3;)";
  EXPECT_THAT(run(body, {.block = {1, 1, 1}, .words = 5}).words,
              ElementsAre(0xffffff81, 0x80, 0xffff8081, 0xfedc, 0x80810081));
}

TEST(Memory, VectorsLieOneBehindTheOther) {
  const std::string body = R"(
    .shared .align 16 .b8 x[64];
    mov.u32 %r3, x;
    st.shared.v4.u32 [%r3+16], {%r0, 1, 2, 3};
    ld.shared.v2.u32 {%r4, %r5}, [%r3+24];
    ld.shared.v4.u8 {%r6, _, %r7, %r8}, [%r3+24];
    ld.shared.v2.u64 {%d2, %d3}, [%r3+16]; cvt.u32.u64 %r9, %d3;
    st.global.v4.u32 [%d0], {%r4, %r5, %r6, %r9};)";
  EXPECT_THAT(run(body, {.block = {1, 1, 1}, .words = 4}).words,
              ElementsAre(2, 3, 2, 2));
}

TEST(Memory, GenericAddressesLeadToEachSpace) {
  const std::string body = R"(
    .shared .align 4 .b32 x;
    .local .align 4 .b32 y;
    mov.u64 %d1, x; cvta.shared.u64 %d2, %d1;
    mov.u64 %d3, y; cvta.local.u64 %d4, %d3;
    isspacep.shared %p1, %d2; isspacep.local %p2, %d4; isspacep.global %p3, %d2;
    st.u32 [%d2], 11; add.s32 %r3, %r0, 22; st.u32 [%d4], %r3;
    ld.shared.u32 %r4, [x]; ld.local.u32 %r5, [y];
    cvta.to.shared.u64 %d5, %d2; cvt.u32.u64 %r6, %d5; ld.shared.u32 %r7, [%r6];
    selp.u32 %r8, 1, 0, %p1; selp.u32 %r9, 1, 0, %p2; selp.u32 %r10, 1, 0, %p3;
    setp.eq.u32 %p4, %r0, 31;
    @%p4 st.global.v4.u32 [%d0], {%r4, %r5, %r7, %r8};
    @%p4 st.global.v2.u32 [%d0+16], {%r9, %r10};)";
  EXPECT_THAT(run(body, {.words = 6}).words, ElementsAre(11, 53, 11, 1, 1, 0));
}

TEST(Memory, AnAddressOfSharedMemoryIsNoneOfGlobalMemory) {
  const std::string address =
      ".shared .align 4 .b32 x; mov.u64 %d1, x; cvta.shared.u64 %d2, %d1; ";
  EXPECT_EQ(run(address + "st.u32 [%d2], %r0; atom.add.u32 %r2, [%d2], 1;").result, 0);
  for (const std::string access :
       {"st.global.u32 [%d2], %r0;", "ld.global.u32 %r2, [%d2];",
        "atom.global.add.u32 %r2, [%d2], 1;"}) {
    const Outcome outcome = run(address + access);
    EXPECT_EQ(outcome.result, 700) << access;
    EXPECT_THAT(outcome.why, HasSubstr("invalid global")) << access;
  }
}

TEST(Memory, DynamicSharedMemoryBeginsBehindTheStatic) {
  const Setting setting{.before = ".extern .shared .align 16 .b8 room[];",
                        .block = {1, 1, 1},
                        .words = 2,
                        .dynamic_shared_bytes = 32};
  const std::string body = R"(
    .shared .align 4 .b8 own[20];
    mov.u32 %r3, own; mov.u32 %r4, room; sub.s32 %r5, %r4, %r3;
    mov.u32 %r6, 7; st.shared.u32 [%r4+28], %r6; ld.shared.u32 %r7, [room+28];
    st.global.v2.u32 [%d0], {%r5, %r7};)";
  EXPECT_THAT(run(body, setting).words, ElementsAre(32, 7));
  const Outcome beyond = run(body + "st.shared.u32 [room+32], %r6;", setting);
  EXPECT_EQ(beyond.result, 700);
  EXPECT_THAT(beyond.why, HasSubstr("invalid shared write of 4 bytes"));
}

TEST(Memory, AnAccessOutOfBoundsNamesThreadAndStatement) {
  const Outcome outcome =
      run(R"(
    .loc 1 42 7
    mul.wide.u32 %d1, %r0, 4; add.s64 %d2, %d0, %d1;
    ld.global.u32 %r2, [%d2+64];)",
          {.before = ".file 1 \"kernel.cu\"", .block = {24, 1, 1}, .words = 32});
  EXPECT_EQ(outcome.result, 700);
  EXPECT_THAT(outcome.why,
              AllOf(HasSubstr("invalid global read of 4 bytes"),
                    HasSubstr("by thread (16, 0, 0) of block (0, 0, 0)"),
                    HasSubstr("out of bounds"),
                    HasSubstr("ld.global.u32 %r2, [%d2+64]; (kernel.cu:42)")));
  EXPECT_EQ(run("mov.u64 %d1, 64; st.global.u32 [%d1], %r0;").result, 700);
  EXPECT_EQ(run(".local .align 4 .b32 y; ld.local.u32 %r2, [y+4];").result, 700);
  EXPECT_EQ(run("mov.u64 %d1, 0; ld.u32 %r2, [%d1];").result, 700);
}

TEST(Memory, AMisalignedAccessIsAnErrorOfItsOwn) {
  const Outcome outcome = run("ld.global.u32 %r2, [%d0+2];");
  EXPECT_EQ(outcome.result, 716);
  EXPECT_THAT(outcome.why, HasSubstr("the address is misaligned"));
  EXPECT_EQ(
      run(".shared .align 16 .b8 x[64]; ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [x+8];")
          .result,
      716);
}

TEST(Memory, WhatNobodyWroteIsNotedWhenItIsRead) {
  const auto notes = [](const std::string& body) {
    return run(body, {.checks = {.unset = true}}).report.notes;
  };
  const std::string shared =
      ".shared .align 4 .b8 x[128]; shl.b32 %r3, %r0, 2; mov.u32 %r4, x;"
      "add.s32 %r3, %r3, %r4;";
  EXPECT_THAT(notes(shared + "st.shared.u32 [%r3], %r0; ld.shared.u32 %r2, [%r3];"),
              IsEmpty());
  const auto of_shared = notes(shared + "ld.shared.u32 %r2, [%r3];");
  ASSERT_EQ(of_shared.size(), 1U);
  EXPECT_THAT(of_shared.begin()->first,
              HasSubstr("read of shared memory that was never written"));
  EXPECT_EQ(of_shared.begin()->second, 32U);
  EXPECT_THAT(notes("st.global.u32 [%d0], 7; ld.global.u32 %r2, [%d0];"), IsEmpty());
  EXPECT_EQ(notes("ld.global.u32 %r2, [%d0];").size(), 1U);
}

TEST(Memory, AnAccessBelowItsSpaceIsOutOfBounds) {
  const Outcome shared =
      run(".shared .align 4 .b8 x[16]; mov.u32 %r3, x; sub.s32 %r3, %r3, 4;"
          "st.shared.u32 [%r3], %r0;");
  EXPECT_EQ(shared.result, 700);
  const Outcome global =
      run("setp.eq.u32 %p1, %r0, 1; mov.u64 %d1, %d0; @%p1 mov.u64 %d1, -4;"
          "st.global.u32 [%d1], %r0;");
  EXPECT_EQ(global.result, 700);
}

TEST(Memory, NarrowVectorsComeFromWideRegistersAndConstants) {
  const auto stored = [](const std::string& parts) {
    return run("mad.lo.s32 %r3, %r0, 2, 0; cvt.u64.u32 %d1, %r3; add.s64 %d1, %d0, %d1;"
               "st.global.v2.u8 [%d1], " +
                   parts + ";",
               {.words = 16})
        .words;
  };
  const auto wanted = [](auto first, auto second) {
    return each_of(16, [&](unsigned i) {
      return first(2 * i) | second(2 * i) << 8U | first(2 * i + 1) << 16U |
             second(2 * i + 1) << 24U;
    });
  };
  const auto lane = [](unsigned i) { return i; };
  const auto seven = [](unsigned) { return 7U; };
  EXPECT_EQ(stored("{%r0, 7}"), wanted(lane, seven));
  EXPECT_EQ(stored("{7, %r0}"), wanted(seven, lane));
  EXPECT_THAT(refusal_of("st.global.v2.u8 [%d0], {%r0, %h1};"),
              HasSubstr("its registers differ in width"));
  EXPECT_THAT(refusal_of("add.u16 %h1, %h2, %r3;"), HasSubstr("%r3 is too wide"));
}

TEST(Memory, AtomicsOfAllLanesAddUp) {
  const auto one = [](const std::string& body, std::size_t words = 1) {
    return run("mov.u32 %r3, 0; setp.eq.u32 %p1, %r0, 0;"
               "@%p1 st.global.v2.u32 [%d0], {%r3, %r3}; bar.sync 0;" +
                   body,
               {.words = words < 2 ? 2 : words})
        .words[0];
  };
  EXPECT_EQ(one("red.global.add.u32 [%d0], %r0;"), 31U * 16);
  EXPECT_EQ(one("atom.global.max.u32 %r4, [%d0], %r0;"), 31U);
  EXPECT_EQ(one("atom.global.inc.u32 %r4, [%d0], 9;"), 32U % 10);
  EXPECT_EQ(one("shl.b32 %r5, 1, %r0; red.global.or.b32 [%d0], %r5;"), 0xffffffff);
  EXPECT_EQ(one("cvt.rn.f32.u32 %f1, %r0; red.global.add.f32 [%d0], %f1;"),
            std::bit_cast<std::uint32_t>(496.0F));
  EXPECT_EQ(one("mov.b32 %r5, 0x3C003C00; red.global.add.noftz.f16x2 [%d0], %r5;"),
            0x50005000U);
  EXPECT_EQ(one(R"(
  AGAIN:
    ld.global.u32 %r6, [%d0]; add.s32 %r7, %r6, 2;
    atom.global.cas.b32 %r8, [%d0], %r6, %r7;
    setp.ne.u32 %p2, %r8, %r6; @%p2 bra AGAIN;)"),
            64U);
  EXPECT_EQ(run("st.global.u32 [%d0], 5; atom.global.exch.b32 %r4, [%d0], 7;"
                "atom.global.cas.b32 %r5, [%d0], 6, 9; st.global.u32 [%d0+4], %r4; "
                "st.global.u32 [%d0+8], %r5;",
                {.block = {1, 1, 1}, .words = 3})
                .words,
            (std::vector<std::uint32_t>{7, 5, 7}));
}

TEST(Memory, GlobalVariablesAndFunctionsHaveAddresses) {
  // The caller tells where variables are; see the simulated driver for their values.
  const auto program = decode(
      text_of(".global .align 4 .b32 x;", "mov.u64 %d1, x; ld.global.u32 %r2, [%d1];"));
  ASSERT_TRUE(program) << program.error();
  Arena arena;
  const std::vector<std::uint32_t> value{77};
  Parameters parameters;
  parameters.add(arena.reserve(4));
  Report report;
  const Launch launched{.entry = "k", .parameters = parameters.bytes()};
  EXPECT_FALSE(launch(**program, launched, {}, arena, {}, {}, report));
  const Symbols symbols{{"x", arena.add(std::span<const std::uint32_t>(value))}};
  EXPECT_TRUE(launch(**program, launched, symbols, arena, {}, {}, report));
}

TEST(Memory, AKernelPrintsAssertsAndAllocates) {
  const std::string functions = R"(
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.extern .func (.param .b64 r) malloc(.param .b64 n);
.extern .func free(.param .b64 p);
)";
  const Outcome outcome = run(R"(
    .param .b64 n; .param .b64 p; .param .b64 q;
    st.param.b64 [n], 8;
    call.uni (p), malloc, (n);
    ld.param.b64 %d1, [p];
    st.u32 [%d1+4], %r0; ld.u32 %r2, [%d1+4];
    st.param.b64 [q], %d1;
    call.uni free, (q);)" + std::string(kStore),
                              {.before = functions});
  EXPECT_EQ(outcome.why, "");
  EXPECT_EQ(outcome.words, each_of(32, [](unsigned i) { return i; }));
  EXPECT_EQ(run("trap;").result, 715);
}

}  // namespace
}  // namespace kiln::ptx::test
