// wmma against three loops, of matrices that lie in memory by rows or by columns.

#include <bit>
#include <cstring>
#include <functional>
#include <random>

#include "tests/support/ptx/numbers.h"
#include "tests/support/test.h"
#include "tests/unit/ptx/whole_kernel.h"

namespace kiln::ptx::test {
namespace {

/// A type of elements, and small whole numbers as its bits.
struct Elements {
  std::string name;
  unsigned bits;
  std::function<std::uint64_t(int)> encode;
  std::function<double(std::uint64_t)> decode{};
  int least = -4;
  int most = 4;
};
const Elements kF16{"f16", 16,
                    [](int v) { return to_half(static_cast<float>(v)).bits; },
                    [](std::uint64_t b) {
                      return double{to_float(Half{static_cast<std::uint16_t>(b)})};
                    }};
const Elements kBf16{"bf16", 16,
                     [](int v) { return to_bfloat(static_cast<float>(v)).bits; }};
const Elements kTf32{"tf32", 32, [](int v) {
                       return std::bit_cast<std::uint32_t>(static_cast<float>(v));
                     }};
const Elements kFloat{
    "f32", 32, kTf32.encode, [](std::uint64_t b) {
      return double{std::bit_cast<float>(static_cast<std::uint32_t>(b))};
    }};
const Elements kDouble{
    "f64", 64,
    [](int v) { return std::bit_cast<std::uint64_t>(static_cast<double>(v)); },
    [](std::uint64_t b) { return std::bit_cast<double>(b); }};
const Elements kInt{
    "s32", 32, [](int v) { return static_cast<std::uint32_t>(v); },
    [](std::uint64_t b) { return static_cast<double>(static_cast<std::int32_t>(b)); }};
const Elements kS8{"s8", 8, [](int v) { return static_cast<std::uint8_t>(v); }};
const Elements kU8{"u8", 8, kS8.encode, {}, 0, 255};
const Elements kS4{"s4", 4, [](int v) { return static_cast<unsigned>(v) & 15U; }};
const Elements kU4{"u4", 4, kS4.encode, {}, 0, 15};
const Elements kB1{"b1", 1, kS4.encode, {}, 0, 1};

struct Multiplication {
  unsigned m, n, k;
  const Elements& factor;
  const Elements& c;
  const Elements& d;
  bool a_by_columns = false;
  bool b_by_columns = true;
  bool c_by_columns = false;
  std::string popc{};  // "xor" or "and"
};

constexpr unsigned kPart = 4096;  // bytes for each matrix
using Matrix = std::vector<std::vector<int>>;

Matrix any_matrix(char which, unsigned rows, unsigned columns,
                  const Elements& elements) {
  std::mt19937 random(static_cast<unsigned>(which));
  Matrix made(rows, std::vector<int>(columns));
  for (auto& row : made) {
    for (int& each : row)
      each = elements.least +
             static_cast<int>(
                 random() % static_cast<unsigned>(elements.most - elements.least + 1));
  }
  return made;
}

/// The bit where an element lies, in a matrix without room between its lines.
std::size_t place(const Matrix& matrix, unsigned row, unsigned column, unsigned bits,
                  bool by_columns) {
  return bits *
         (by_columns ? column * matrix.size() + row : row * matrix[0].size() + column);
}
void write(std::vector<std::byte>& to, std::size_t begin, const Matrix& matrix,
           const Elements& elements, bool by_columns) {
  for (unsigned row = 0; row < matrix.size(); ++row) {
    for (unsigned column = 0; column < matrix[0].size(); ++column) {
      const std::size_t at = place(matrix, row, column, elements.bits, by_columns);
      std::uint64_t word = 0;
      std::memcpy(&word, &to[begin + at / 64 * 8], 8);
      word |= elements.encode(matrix[row][column]) << at % 64;
      std::memcpy(&to[begin + at / 64 * 8], &word, 8);
    }
  }
}

unsigned registers_of(const Multiplication& form, char which) {
  const bool is_sum = which == 'c' || which == 'd';
  const Elements& elements = which == 'c' ? form.c : is_sum ? form.d : form.factor;
  const unsigned rows = which == 'b' ? form.k : form.m;
  const unsigned columns = which == 'a' ? form.k : form.n;
  if (!is_sum && elements.name == "f16")
    return 8;
  return rows * columns / 32 / std::max(32 / elements.bits, 1U);
}
std::string list(const Multiplication& form, char which) {
  const bool is_double = form.factor.bits == 64;
  const auto number = static_cast<unsigned>(which - 'a');
  std::string text;
  for (unsigned i = 0; i < registers_of(form, which); ++i)
    text += fmt::format("{}%{}{}", i == 0 ? "" : ", ", is_double ? 'd' : 'r',
                        10 + 10 * number / (is_double ? 5 : 1) + i);
  return "{" + text + "}";
}
const char* layout(bool by_columns) {
  return by_columns ? "col" : "row";
}

std::string body_of(const Multiplication& form) {
  const std::string shape = fmt::format("m{}n{}k{}", form.m, form.n, form.k);
  const auto load = [&](char which, const Elements& elements, bool by_columns,
                        unsigned stride) {
    return fmt::format("wmma.load.{}.sync.aligned.{}.{}.global.{} {}, [%d0+{}], {};",
                       which, layout(by_columns), shape, elements.name,
                       list(form, which), kPart * static_cast<unsigned>(which - 'a'),
                       stride);
  };
  const std::string types =
      form.factor.name == "f16"
          ? form.d.name + "." + form.c.name
          : fmt::format("{0}.{1}.{1}.{2}", form.d.name, form.factor.name, form.c.name);
  return load('a', form.factor, form.a_by_columns,
              form.a_by_columns ? form.m : form.k) +
         load('b', form.factor, form.b_by_columns,
              form.b_by_columns ? form.k : form.n) +
         load('c', form.c, form.c_by_columns, form.c_by_columns ? form.m : form.n) +
         fmt::format("wmma.mma{}.sync.aligned.{}.{}.{}.{} {}, {}, {}, {};",
                     form.popc.empty() ? "" : "." + form.popc + ".popc",
                     layout(form.a_by_columns), layout(form.b_by_columns), shape, types,
                     list(form, 'd'), list(form, 'a'), list(form, 'b'),
                     list(form, 'c')) +
         fmt::format("wmma.store.d.sync.aligned.{}.{}.global.{} [%d0+{}], {}, {};",
                     layout(!form.c_by_columns), shape, form.d.name, 3 * kPart,
                     list(form, 'd'), form.c_by_columns ? form.n : form.m);
}

int product_of(const Multiplication& form, int a, int b) {
  return form.popc == "xor" ? a ^ b : form.popc == "and" ? a & b : a * b;
}

TEST(Fragments, ProductsAreThoseOfThreeLoops) {
  const std::vector<Multiplication> forms{
      {16, 16, 16, kF16, kFloat, kFloat},
      {16, 16, 16, kF16, kF16, kFloat, true, false},
      {8, 32, 16, kF16, kFloat, kF16, false, false, true},
      {32, 8, 16, kF16, kF16, kF16, true, true, true},
      {16, 16, 16, kBf16, kFloat, kFloat},
      {8, 32, 16, kBf16, kFloat, kFloat, false, false},
      {16, 16, 8, kTf32, kFloat, kFloat},
      {16, 16, 8, kTf32, kFloat, kFloat, true, false, true},
      {16, 16, 16, kS8, kInt, kInt},
      {8, 32, 16, kS8, kInt, kInt, true, false},
      {32, 8, 16, kU8, kInt, kInt, false, true, true},
      {8, 8, 4, kDouble, kDouble, kDouble},
      {8, 8, 4, kDouble, kDouble, kDouble, true, false, true},
      {8, 8, 32, kS4, kInt, kInt},
      {8, 8, 32, kU4, kInt, kInt, false, true, true},
      {8, 8, 128, kB1, kInt, kInt, false, true, false, "xor"},
      {8, 8, 128, kB1, kInt, kInt, false, true, false, "and"},
  };
  for (const Multiplication& form : forms) {
    const std::string body = body_of(form);
    SCOPED_TRACE(body);
    const Matrix a = any_matrix('a', form.m, form.k, form.factor);
    const Matrix b = any_matrix('b', form.k, form.n, form.factor);
    const Matrix c = any_matrix('c', form.m, form.n, form.c);
    std::vector<std::byte> bytes(4 * kPart);
    write(bytes, 0, a, form.factor, form.a_by_columns);
    write(bytes, kPart, b, form.factor, form.b_by_columns);
    write(bytes, 2 * kPart, c, form.c, form.c_by_columns);
    std::vector<std::uint32_t> words(kPart);
    std::memcpy(words.data(), bytes.data(), bytes.size());
    const Outcome outcome = run(body, {.words = words.size(), .initial = words});
    ASSERT_EQ(outcome.why, "");
    for (unsigned row = 0; row < form.m; ++row) {
      for (unsigned column = 0; column < form.n; ++column) {
        int wanted = c[row][column];
        for (unsigned k = 0; k < form.k; ++k)
          wanted += product_of(form, a[row][k], b[k][column]);
        const std::size_t at = place(c, row, column, form.d.bits, !form.c_by_columns);
        std::uint64_t bits = 0;
        std::memcpy(&bits, &outcome.words[3 * kPart / 4 + at / 32], 8);
        bits >>= at % 32;
        ASSERT_EQ(form.d.decode(bits), wanted)
            << "row " << row << ", column " << column;
      }
    }
  }
}

TEST(Fragments, LieInSharedMemoryAndBetweenOthers) {
  // Rows of 8 words, 12 words apart, from shared memory to global without a stride.
  const Outcome outcome = run(R"(
    .shared .align 32 .b8 x[384];
    mov.u32 %r3, x;
    mad.lo.s32 %r4, %r0, 4, %r3;
    st.shared.u32 [%r4], %r0;
    add.s32 %r5, %r0, 32; st.shared.u32 [%r4+128], %r5;
    add.s32 %r6, %r0, 64; st.shared.u32 [%r4+256], %r6;
    bar.sync 0;
    wmma.load.c.sync.aligned.row.m8n8k32.shared.s32 {%r10, %r11}, [%r3], 12;
    wmma.store.d.sync.aligned.row.m8n8k32.global.s32 [%d0], {%r10, %r11};)",
                              {.words = 64});
  EXPECT_EQ(outcome.why, "");
  EXPECT_EQ(outcome.words, each_of(64, [](unsigned i) { return i / 8 * 12 + i % 8; }));
}

TEST(Fragments, AreOfAllLanesAndOneAddress) {
  const std::string load = "wmma.load.a.sync.aligned.row.m8n8k4.f64 %d5, [%d1], 4;";
  EXPECT_THAT(
      run("mul.wide.u32 %d1, %r0, 8; add.s64 %d1, %d0, %d1;" + load, {.words = 256})
          .why,
      HasSubstr("not all lanes of the warp have the same matrix"));
}

TEST(Fragments, SumsSaturateWhereTheyAreToldTo) {
  const std::string loads = R"(
    mov.b32 %r10, 0x7f7f7f7f; mov.b32 %r11, %r10; mov.b32 %r20, %r10; mov.b32 %r21, %r10;
    mov.b32 %r30, 0x7fffff00;)";
  const auto sum = [&](const std::string& how) {
    return run(loads + "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32" + how +
               R"(
      {%r40, %r41, %r42, %r43, %r44, %r45, %r46, %r47}, {%r10, %r11}, {%r20, %r21},
      {%r30, %r30, %r30, %r30, %r30, %r30, %r30, %r30};
      mov.b32 %r2, %r45;)" +
               kStore)
        .words[7];
  };
  EXPECT_EQ(sum(""), 0x7fffff00U + 16 * 127 * 127);
  EXPECT_EQ(sum(".satfinite"), 0x7fffffffU);
}

TEST(Fragments, HaveAlignedLines) {
  const Outcome outcome =
      run("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 "
          "{%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}, [%d0+8], 16;",
          {.words = 256});
  EXPECT_EQ(outcome.result, 716);
  EXPECT_THAT(outcome.why, HasSubstr("wmma.load.a"));
}

TEST(Fragments, OfAnotherShapeAreRefused) {
  EXPECT_THAT(refusal_of("wmma.load.a.sync.aligned.row.m64n8k16.f16 {%r1}, [%d0], 16;"),
              HasSubstr("matrices of this shape are not run here"));
  EXPECT_THAT(
      refusal_of("wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1}, [%d0], 16;"),
      HasSubstr("it has not as many registers as its shape"));
}

}  // namespace
}  // namespace kiln::ptx::test
