// Products of matrices against three loops, with the fragments written out as the PTX
// ISA's tables have them ("Matrix Fragments for mma..."); how matrices are loaded, and
// what shared memory has to do for it.

#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "tests/support/ptx/numbers.h"
#include "tests/support/test.h"
#include "tests/unit/ptx/whole_kernel.h"

namespace kiln::ptx::test {
namespace {

/// Row and column of element i of lane `lane`.
using Place = std::pair<unsigned, unsigned>;
using Places = std::function<Place(unsigned lane, unsigned i)>;

struct Form {
  std::string name;  // the instruction
  unsigned depth;
  unsigned a_elements, b_elements;  // of a lane
  unsigned bits;                    // of one of them
  Places a, b;
  std::function<std::uint32_t(int)> encode;  // of small whole numbers
  bool is_integer = false;
};

std::uint32_t as_half(int value) {
  return to_half(static_cast<float>(value)).bits;
}
std::uint32_t as_bfloat(int value) {
  return to_bfloat(static_cast<float>(value)).bits;
}
std::uint32_t as_float(int value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}
std::uint32_t as_e4m3(int value) {
  return e4m3_bits(value);
}
std::uint32_t as_byte(int value) {
  return static_cast<std::uint8_t>(value);
}

Place a_16816(unsigned lane, unsigned i) {
  const unsigned group = lane >> 2U;
  const unsigned thread = lane % 4;
  const bool is_upper = i < 2 || (i >= 4 && i < 6);
  return {is_upper ? group : group + 8, thread * 2 + (i & 1U) + (i >= 4 ? 8 : 0)};
}
Place b_16816(unsigned lane, unsigned i) {
  return {(lane % 4) * 2 + (i & 1U) + (i >= 2 ? 8 : 0), lane >> 2U};
}
Place a_1688(unsigned lane, unsigned i) {
  return {(lane >> 2U) + (i < 2 ? 0 : 8), (lane % 4) * 2 + (i & 1U)};
}
Place b_1688(unsigned lane, unsigned i) {
  return {(lane % 4) * 2 + i, lane >> 2U};
}
Place a_1688_tf32(unsigned lane, unsigned i) {
  return {(lane >> 2U) + (i == 1 || i == 3 ? 8 : 0), lane % 4 + (i >= 2 ? 4 : 0)};
}
Place b_1688_tf32(unsigned lane, unsigned i) {
  return {lane % 4 + (i == 1 ? 4 : 0), lane >> 2U};
}
Place a_16832(unsigned lane, unsigned i) {
  const bool is_upper = i < 4 || (i >= 8 && i < 12);
  return {(lane >> 2U) + (is_upper ? 0 : 8),
          (lane % 4) * 4 + (i & 3U) + (i >= 8 ? 16 : 0)};
}
Place b_16832(unsigned lane, unsigned i) {
  return {(lane % 4) * 4 + (i & 3U) + (i >= 4 ? 16 : 0), lane >> 2U};
}
Place c_168(unsigned lane, unsigned i) {
  return {(lane >> 2U) + (i < 2 ? 0 : 8), (lane % 4) * 2 + (i & 1U)};
}

std::vector<Form> forms() {
  return {
      {"m16n8k16.row.col.f32.f16.f16.f32", 16, 8, 4, 16, a_16816, b_16816, as_half},
      {"m16n8k16.row.col.f32.bf16.bf16.f32", 16, 8, 4, 16, a_16816, b_16816, as_bfloat},
      {"m16n8k8.row.col.f32.f16.f16.f32", 8, 4, 2, 16, a_1688, b_1688, as_half},
      {"m16n8k8.row.col.f32.bf16.bf16.f32", 8, 4, 2, 16, a_1688, b_1688, as_bfloat},
      {"m16n8k8.row.col.f32.tf32.tf32.f32", 8, 4, 2, 32, a_1688_tf32, b_1688_tf32,
       as_float},
      {"m16n8k32.row.col.f32.e4m3.e4m3.f32", 32, 16, 8, 8, a_16832, b_16832, as_e4m3},
      {"m16n8k32.row.col.s32.s8.s8.s32", 32, 16, 8, 8, a_16832, b_16832, as_byte, true},
  };
}

TEST(Matrices, ProductsAreThoseOfThreeLoops) {
  for (const Form& form : forms()) {
    SCOPED_TRACE(form.name);
    std::mt19937 random(7);
    std::vector<std::vector<int>> a(16, std::vector<int>(form.depth));
    std::vector<std::vector<int>> b(form.depth, std::vector<int>(8));
    std::vector<std::vector<int>> c(16, std::vector<int>(8));
    for (auto* matrix : {&a, &b, &c}) {
      for (auto& row : *matrix) {
        for (int& each : row) each = static_cast<int>(random() % 17) - 8;
      }
    }
    // 16 words of each lane: a, b, c.
    std::vector<std::uint32_t> words(512);
    const unsigned per_word = 32 / form.bits;
    const unsigned a_words = form.a_elements / per_word;
    const unsigned b_words = form.b_elements / per_word;
    for (unsigned lane = 0; lane < 32; ++lane) {
      std::uint32_t* const to = &words[std::size_t{lane} * 16];
      for (unsigned i = 0; i < form.a_elements; ++i) {
        const auto [row, column] = form.a(lane, i);
        to[i / per_word] |= form.encode(a[row][column]) << (i % per_word * form.bits);
      }
      for (unsigned i = 0; i < form.b_elements; ++i) {
        const auto [row, column] = form.b(lane, i);
        to[4 + i / per_word] |= form.encode(b[row][column])
                                << (i % per_word * form.bits);
      }
      for (unsigned i = 0; i < 4; ++i) {
        const auto [row, column] = c_168(lane, i);
        to[8 + i] = form.is_integer ? static_cast<std::uint32_t>(c[row][column])
                                    : as_float(c[row][column]);
      }
    }
    const auto list = [](unsigned first, unsigned count) {
      std::string text;
      for (unsigned i = 0; i < count; ++i)
        text += fmt::format("{}%r{}", i == 0 ? "" : ", ", first + i);
      return text;
    };
    const Outcome outcome =
        run("mul.wide.u32 %d1, %r0, 64; add.s64 %d2, %d0, %d1;"
            "ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%d2];"
            "ld.global.v4.b32 {%r20, %r21, %r22, %r23}, [%d2+16];"
            "ld.global.v4.b32 {%r30, %r31, %r32, %r33}, [%d2+32];"
            "mma.sync.aligned." +
                form.name + " {" + list(40, 4) + "}, {" + list(10, a_words) + "}, {" +
                list(20, b_words) + "}, {" + list(30, 4) +
                "}; st.global.v4.b32 [%d2+48], {%r40, %r41, %r42, %r43};",
            {.words = 512, .initial = words});
    ASSERT_EQ(outcome.why, "");
    for (unsigned lane = 0; lane < 32; ++lane) {
      for (unsigned i = 0; i < 4; ++i) {
        const auto [row, column] = c_168(lane, i);
        int wanted = c[row][column];
        for (unsigned k = 0; k < form.depth; ++k) wanted += a[row][k] * b[k][column];
        const std::uint32_t got = outcome.words[std::size_t{lane} * 16 + 12 + i];
        const double value = form.is_integer
                                 ? static_cast<double>(static_cast<std::int32_t>(got))
                                 : static_cast<double>(std::bit_cast<float>(got));
        ASSERT_EQ(value, wanted) << "row " << row << ", column " << column;
      }
    }
  }
}

/// Lane i stores the words 4i..4i+3 at row i of the matrices, `stride` bytes apart,
/// loads them as matrices, and gives the register `which` of them.
Outcome loaded(const std::string& how, unsigned which, unsigned stride = 16) {
  return run(fmt::format(R"(
    .shared .align 16 .b8 x[8192];
    mov.u32 %r3, x; mad.lo.s32 %r4, %r0, {}, %r3;
    shl.b32 %r5, %r0, 3; mov.u32 %r6, 0;
    {{ .reg .b32 v, w; mul.lo.s32 v, %r5, 0x10001; add.s32 v, v, 0x10000;
      st.shared.u32 [%r4], v; add.s32 v, v, 0x20002; st.shared.u32 [%r4+4], v;
      add.s32 v, v, 0x20002; st.shared.u32 [%r4+8], v; add.s32 v, v, 0x20002;
      st.shared.u32 [%r4+12], v; }}
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x4{}.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r4];
    mov.u32 %r2, %r{};)",
                         stride, how, 10 + which) +
                 kStore,
             {.checks = {.conflicts = true}});
}

// Element k of row r of matrix m is 64m + 8r + k.
TEST(Matrices, AreLoadedByRowsOrTransposed) {
  EXPECT_EQ(loaded("", 2).words, each_of(32, [](unsigned lane) {
              const unsigned first = 64 * 2 + 8 * (lane / 4) + 2 * (lane % 4);
              return first | (first + 1) << 16U;
            }));
  EXPECT_EQ(loaded(".trans", 3).words, each_of(32, [](unsigned lane) {
              const unsigned row = 2 * (lane % 4);
              const unsigned column = lane / 4;
              const unsigned first = 64 * 3 + 8 * row + column;
              return first | (first + 8) << 16U;
            }));
}

TEST(Matrices, AreLoadedFromGenericAddressesAsWell) {
  const Outcome outcome = run(R"(
    .shared .align 16 .b8 x[128];
    mov.u64 %d1, x; cvta.shared.u64 %d2, %d1;
    mov.u32 %r3, x; mad.lo.s32 %r4, %r0, 4, %r3; st.shared.u32 [%r4], %r0;
    bar.sync 0;
    and.b32 %r5, %r0, 7; mul.wide.u32 %d3, %r5, 16; add.s64 %d2, %d2, %d3;
    ldmatrix.sync.aligned.m8n8.x1.b16 {%r2}, [%d2];)" +
                              std::string(kStore));
  EXPECT_EQ(outcome.why, "");
  EXPECT_EQ(outcome.words, each_of(32, [](unsigned i) { return i; }));
}

TEST(Matrices, BankConflictsAreCounted) {
  const auto ratio = [](unsigned stride) {
    for (const auto& [text, traffic] : loaded("", 0, stride).report.traffic) {
      if (text.starts_with("ldmatrix"))
        return static_cast<double>(traffic.wavefronts) /
               static_cast<double>(traffic.least_wavefronts);
    }
    return 0.0;
  };
  EXPECT_EQ(ratio(16), 1);   // one row behind the other
  EXPECT_EQ(ratio(144), 1);  // padded by a row
  EXPECT_EQ(ratio(128), 8);  // each row in the same banks
}

TEST(Matrices, HaveRowsAtMultiplesOf16Bytes) {
  const Outcome outcome = run(R"(
    .shared .align 16 .b8 x[1024];
    mov.u32 %r3, x; mad.lo.s32 %r4, %r0, 16, %r3; add.s32 %r4, %r4, 8;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r4];)");
  EXPECT_EQ(outcome.result, 716);
  EXPECT_THAT(outcome.why, HasSubstr("ldmatrix"));
}

TEST(Matrices, AnAlignedInstructionWaitsForTheWholeWarp) {
  const Outcome outcome = run(R"(
    setp.lt.u32 %p1, %r0, 8;
    @%p1 bra DONE;
    movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r0;
  DONE:
    bar.sync 0;)");
  EXPECT_EQ(outcome.result, 702);
  EXPECT_THAT(outcome.why, HasSubstr("movmatrix"));
}

}  // namespace
}  // namespace kiln::ptx::test
