// Floating-point instructions against C++'s, which computes as IEEE 754 says, and those
// of halves against the nearest of all halves.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "tests/unit/ptx/inputs.h"

namespace kiln::ptx::test {
namespace {

/// A half's value, as IEEE 754 says it of binary16.
double value_of(U16 bits) {
  const auto exponent = static_cast<int>(bits >> 10U & 31U);
  const auto fraction = static_cast<int>(bits & 0x3ffU);
  double value = exponent == 0 ? std::ldexp(fraction, -24)
                               : std::ldexp(fraction + 1024, exponent - 25);
  if (exponent == 31)
    value = fraction == 0 ? HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
  return (bits & 0x8000U) != 0 ? -value : value;
}

/// The half nearest to a number, of two as near the even one.
U16 nearest_half(long double number) {
  if (number != number)
    return 0x7fff;
  static const auto values = [] {
    std::vector<double> all;  // by their bits; 2^16 stands for infinity
    for (unsigned bits = 0; bits < 0x7c00; ++bits)
      all.push_back(value_of(static_cast<U16>(bits)));
    all.push_back(65536);
    return all;
  }();
  const long double magnitude = std::fabs(number);
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude);
  auto bits = static_cast<unsigned>(above - values.begin());
  if (above == values.end()) {
    bits = 0x7c00;
  } else if (*above != magnitude) {
    const long double down = magnitude - *(above - 1);
    const long double up = *above - magnitude;
    if (down < up || (down == up && bits % 2 == 1))
      --bits;
  }
  return static_cast<U16>(bits | (std::signbit(number) ? 0x8000U : 0U));
}

bool same(float a, float b) {
  return std::bit_cast<U32>(a) == std::bit_cast<U32>(b) || (a != a && b != b);
}
bool same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) ||
         (a != a && b != b);
}
bool same(U16 a, U16 b) {
  const auto is_nan = [](U16 bits) { return (bits & 0x7fffU) > 0x7c00U; };
  return a == b || (is_nan(a) && is_nan(b));
}

template <typename T, typename Bits>
void compare(const std::string& text, const std::function<T(T, T, T)>& wanted) {
  const Inputs<T>& all = of_every_kind<T>();
  const std::vector<T> got = run<T>(text, all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [a, b, c] = all[i];
    ASSERT_TRUE(same(got[i], wanted(a, b, c)))
        << text << " of " << a << ", " << b << ", " << c << ": " << got[i] << ", not "
        << wanted(a, b, c);
  }
}
void of_floats(const std::string& text,
               const std::function<float(float, float, float)>& wanted) {
  compare<float, U32>(text, wanted);
}
void of_doubles(const std::string& text,
                const std::function<double(double, double, double)>& wanted) {
  compare<double, std::uint64_t>(text, wanted);
}

float flushed(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min()
             ? std::copysign(0.0F, value)
             : value;
}

TEST(FloatInstructions, SumsProductsAndQuotientsAreThoseOfIeee) {
  of_floats("add.f32 %d, %a, %b;", [](float a, float b, float) { return a + b; });
  of_floats("sub.rn.f32 %d, %a, %b;", [](float a, float b, float) { return a - b; });
  of_floats("mul.f32 %d, %a, %b;", [](float a, float b, float) { return a * b; });
  of_floats("div.rn.f32 %d, %a, %b;", [](float a, float b, float) { return a / b; });
  of_floats("fma.rn.f32 %d, %a, %b, %c;",
            [](float a, float b, float c) { return std::fma(a, b, c); });
  of_floats("sqrt.rn.f32 %d, %a;", [](float a, float, float) { return std::sqrt(a); });
  of_floats("rcp.rn.f32 %d, %a;", [](float a, float, float) { return 1 / a; });
  of_doubles("fma.rn.f64 %d, %a, %b, %c;",
             [](double a, double b, double c) { return std::fma(a, b, c); });
  of_doubles("div.rn.f64 %d, %a, %b;",
             [](double a, double b, double) { return a / b; });
}

TEST(FloatInstructions, SubnormalsAreFlushedWhereItIsSaid) {
  of_floats("add.ftz.f32 %d, %a, %b;",
            [](float a, float b, float) { return flushed(flushed(a) + flushed(b)); });
  of_floats("fma.rn.ftz.f32 %d, %a, %b, %c;", [](float a, float b, float c) {
    return flushed(std::fma(flushed(a), flushed(b), flushed(c)));
  });
  of_floats("mul.ftz.sat.f32 %d, %a, %b;", [](float a, float b, float) {
    const float product = flushed(flushed(a) * flushed(b));
    return product > 1 ? 1.0F : product > 0 ? product : 0.0F;
  });
}

template <typename F>
float rounded(int mode, const F& compute) {
  std::fesetround(mode);
  const volatile float result = compute();
  std::fesetround(FE_TONEAREST);
  return result;
}

TEST(FloatInstructions, RoundToZeroUpAndDown) {
  const std::pair<const char*, int> modes[]{
      {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
  for (const auto& [name, mode] : modes) {
    of_floats(fmt::format("add.{}.f32 %d, %a, %b;", name),
              [&, m = mode](float a, float b, float) {
                return rounded(m, [&] {
                  const volatile float x = a;
                  const volatile float y = b;
                  return x + y;
                });
              });
    of_floats(fmt::format("fma.{}.f32 %d, %a, %b, %c;", name),
              [&, m = mode](float a, float b, float c) {
                return rounded(m, [&] {
                  const volatile float x = a;
                  return std::fma(x, b, c);
                });
              });
    of_floats(fmt::format("div.{}.f32 %d, %a, %b;", name),
              [&, m = mode](float a, float b, float) {
                return rounded(m, [&] {
                  const volatile float x = a;
                  const volatile float y = b;
                  return x / y;
                });
              });
  }
}

TEST(FloatInstructions, ExtremesTakeTheNumberAndOrderZeros) {
  of_floats("min.f32 %d, %a, %b;", [](float a, float b, float) {
    if (a != a || b != b)
      return a != a ? b : a;
    return a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
  });
  of_floats("max.NaN.f32 %d, %a, %b;", [](float a, float b, float) {
    if (a != a || b != b)
      return std::numeric_limits<float>::quiet_NaN();
    return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
  });
  of_floats("{.reg .f32 t; abs.f32 t, %a; neg.f32 %d, t;}",
            [](float a, float, float) { return -std::fabs(a); });
  of_floats("copysign.f32 %d, %a, %b;",
            [](float a, float b, float) { return std::copysign(b, a); });
}

TEST(FloatInstructions, HaveOnlyTheirOwnModifiers) {
  for (const char* text :
       {"div.rn.sat.f32 %d, %a, %b;", "mul.relu.f16 %h1, %h2, %h3;",
        "min.abs.f32 %f1, %f2, %f3;", "add.NaN.f32 %f1, %f2, %f3;", "sin.f32 %f1, %f2;",
        "ex2.ftz.f32 %f1, %f2;", "add.sat.u32 %r1, %r2, %r3;",
        "redux.sync.add.f32 %f1, %f2, -1;", "shf.b32 %r1, %r2, %r3, %r4;"}) {
    const auto program = decode(fmt::format(
        ".version 9.0\n.target sm_100\n.address_size 64\n.visible .entry k()\n{{\n"
        ".reg .f32 %f<4>, %a, %b, %d; .reg .b16 %h<4>; .reg .b32 "
        "%r<5>;\n{}\nret;\n}}\n",
        text));
    EXPECT_FALSE(program) << text;
  }
}

TEST(FloatInstructions, ComparisonsAnswerOrRefuseNan) {
  const auto as_float = [](bool answer) { return answer ? 1.0F : 0.0F; };
  const auto text = [](const char* comparison) {
    return fmt::format(
        "setp.{}.f32 %p, %a, %b; selp.f32 %d, 0f3F800000, 0f00000000, %p;", comparison);
  };
  of_floats(text("lt"), [&](float a, float b, float) { return as_float(a < b); });
  of_floats(text("geu"), [&](float a, float b, float) { return as_float(!(a < b)); });
  of_floats(text("ne"),
            [&](float a, float b, float) { return as_float(a < b || a > b); });
  of_floats(text("neu"), [&](float a, float b, float) { return as_float(a != b); });
  of_floats(text("num"),
            [&](float a, float b, float) { return as_float(a == a && b == b); });
  of_floats(text("nan"),
            [&](float a, float b, float) { return as_float(a != a || b != b); });
  of_floats(
      "setp.gt.f32 %q, %a, 0f00000000; setp.lt.and.f32 %p, %a, %b, !%q;"
      " selp.f32 %d, 0f3F800000, 0f00000000, %p;",
      [&](float a, float b, float) { return as_float(a < b && !(a > 0)); });
  of_floats("set.le.f32.f32 %d, %a, %b;",
            [&](float a, float b, float) { return as_float(a <= b); });
}

TEST(FloatInstructions, ConversionsToIntegersRoundAndSaturate) {
  const Inputs<float>& all = of_every_kind<float>();
  const auto check = [&](const char* rounding, const auto& round) {
    const auto got =
        run<std::int32_t>(fmt::format("cvt.{}.s32.f32 %d, %a;", rounding), all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double value = round(static_cast<double>(all[i][0]));
      const auto wanted =
          value != value
              ? 0
              : static_cast<std::int32_t>(std::clamp(value, -0x1p31, 0x1p31 - 1));
      ASSERT_EQ(got[i], wanted) << rounding << " of " << all[i][0];
    }
  };
  check("rzi", [](double v) { return std::trunc(v); });
  check("rni", [](double v) { return std::nearbyint(v); });
  check("rmi", [](double v) { return std::floor(v); });
  check("rpi", [](double v) { return std::ceil(v); });
  of_floats("cvt.rni.f32.f32 %d, %a;",
            [](float a, float, float) { return std::nearbyint(a); });
}

TEST(FloatInstructions, ConversionsFromIntegersRoundOnce) {
  std::mt19937_64 random(3);
  Inputs<std::int64_t> all;
  for (int i = 0; i < 1000; ++i)
    all.push_back({static_cast<std::int64_t>(random() >> (random() % 64)), 0, 0});
  all.push_back({std::numeric_limits<std::int64_t>::min(), 0, 0});
  all.push_back({std::numeric_limits<std::int64_t>::max(), 0, 0});
  all.push_back({0x4000004000000001, 0, 0});  // rounded by way of a double it is wrong
  const auto near = run<float>("cvt.rn.f32.s64 %d, %a;", all);
  const auto down = run<float>("cvt.rm.f32.s64 %d, %a;", all);
  const auto up = run<double>("cvt.rp.f64.s64 %d, %a;", all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t value = all[i][0];
    ASSERT_EQ(near[i], static_cast<float>(value)) << value;
    ASSERT_LE(static_cast<long double>(down[i]), static_cast<long double>(value));
    ASSERT_GT(static_cast<long double>(std::nextafter(down[i], HUGE_VALF)),
              static_cast<long double>(value));
    ASSERT_GE(static_cast<long double>(up[i]), static_cast<long double>(value));
    ASSERT_LT(static_cast<long double>(std::nextafter(up[i], -HUGE_VAL)),
              static_cast<long double>(value));
  }
}

/// All halves, three different ones at a time.
Inputs<U16> all_halves() {
  std::mt19937 random(4);
  Inputs<U16> all;
  for (unsigned bits = 0; bits < 65536; bits += 64)
    all.push_back({static_cast<U16>(bits + random() % 64), static_cast<U16>(random()),
                   static_cast<U16>(random())});
  return all;
}
void of_halves(
    const std::string& text,
    const std::function<long double(long double, long double, long double)>& wanted) {
  const auto all = all_halves();
  const auto got = run<U16>(text, all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [a, b, c] = all[i];
    ASSERT_TRUE(
        same(got[i], nearest_half(wanted(value_of(a), value_of(b), value_of(c)))))
        << text << " of " << std::hex << a << ", " << b << ", " << c << ": " << got[i];
  }
}

TEST(FloatInstructions, HalvesRoundOnce) {
  using Number = long double;
  of_halves("add.f16 %d, %a, %b;", [](Number a, Number b, Number) { return a + b; });
  of_halves("sub.rn.f16 %d, %a, %b;", [](Number a, Number b, Number) { return a - b; });
  of_halves("mul.f16 %d, %a, %b;", [](Number a, Number b, Number) { return a * b; });
  of_halves("neg.f16 %d, %a;", [](Number a, Number, Number) { return -a; });
  of_halves("fma.rn.f16 %d, %a, %b, %c;",
            [](Number a, Number b, Number c) { return a * b + c; });
  of_halves("{.reg .b16 x; mov.b16 x, 0x3C00; min.f16 %d, %a, x;}",
            [](Number a, Number, Number) { return a < 1 ? a : Number{1}; });
}

TEST(FloatInstructions, FloatsBecomeHalvesAndBack) {
  Inputs<float> all;
  std::mt19937 random(5);
  for (int i = 0; i < 1024; ++i) {
    // Between any two halves that follow each other, and halfway.
    const auto low = static_cast<U16>(random() % 0x7bff);
    const auto a = static_cast<float>(value_of(low));
    const auto b = static_cast<float>(value_of(static_cast<U16>(low + 1)));
    all.push_back(
        {(a + b) / 2, a + (b - a) * static_cast<float>(random() % 100) / 100, -a});
  }
  all[0] = {65519.996F, 65520, HUGE_VALF};
  all[1] = {0x1p-25F, 0x1.000002p-25F, -0x1p-26F};
  const auto packed = run<U32>("cvt.rn.f16x2.f32 %d, %a, %b;", all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(packed[i] >> 16U, nearest_half(all[i][0])) << all[i][0];
    ASSERT_EQ(packed[i] & 0xffffU, nearest_half(all[i][1])) << all[i][1];
  }
  const auto back = run<float>("cvt.rn.f16.f32 %x, %c; cvt.f32.f16 %d, %x;", all);
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(back[i], static_cast<float>(value_of(nearest_half(all[i][2]))));
}

/// The bfloat nearest to a float, ties to even, by looking at both neighbours.
U16 nearest_bfloat(float value) {
  const auto bits = std::bit_cast<U32>(value);
  if (value != value)
    return 0x7fff;
  const U32 low = bits & 0xffff0000U;
  const U32 high = low + 0x10000U;
  if (!std::isfinite(value))
    return static_cast<U16>(low >> 16U);
  const U32 rest = bits & 0xffffU;
  const bool is_even = (low >> 16U & 1U) == 0;
  return static_cast<U16>(
      (rest < 0x8000U || (rest == 0x8000U && is_even) ? low : high) >> 16U);
}

TEST(FloatInstructions, FloatsBecomeBfloatsAndBack) {
  const Inputs<float>& all = of_every_kind<float>();
  const auto packed = run<U32>("cvt.rn.bf16x2.f32 %d, %a, %b;", all);
  const auto relu = run<U32>("cvt.rn.relu.bf16x2.f32 %d, %a, %b;", all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(packed[i] >> 16U == nearest_bfloat(all[i][0]) ||
                all[i][0] != all[i][0]);
    ASSERT_TRUE((packed[i] & 0xffffU) == nearest_bfloat(all[i][1]) ||
                all[i][1] != all[i][1]);
    ASSERT_TRUE(relu[i] >> 16U == (all[i][0] > 0 ? nearest_bfloat(all[i][0]) : 0) ||
                all[i][0] != all[i][0])
        << all[i][0];
  }
}

// The tables of the OCP specification: the least and the greatest of each format.
TEST(FloatInstructions, EightBitsAreThoseOfOcp) {
  const Inputs<float> all{{448.0F, 0x1p-9F, 0},
                          {1000.0F, -0x1p-6F, 0},
                          {1.0625F, 1.1875F, 0},
                          {std::numeric_limits<float>::quiet_NaN(), -57344.0F, 0}};
  const auto e4m3 = run<U16>("cvt.rn.satfinite.e4m3x2.f32 %d, %a, %b;", all);
  EXPECT_EQ(e4m3, (std::vector<U16>{0x7e01, 0x7e88, 0x383a, 0x7ffe}));
  const auto e5m2 = run<U16>("cvt.rn.satfinite.e5m2x2.f32 %d, %a, %b;", all);
  EXPECT_EQ(e5m2, (std::vector<U16>{0x5f18, 0x64a4, 0x3c3d, 0x7ffb}));
  // Every byte keeps its value on the way to halves and back.
  Inputs<U16> bytes;
  for (unsigned i = 0; i < 256; ++i)
    bytes.push_back({static_cast<U16>(i | (255 - i) << 8U), 0, 0});
  const auto back = run<U16>(
      "{.reg .b32 h; cvt.rn.f16x2.e4m3x2 h, %a; cvt.rn.satfinite.e4m3x2.f16x2 %d, h;}",
      bytes);
  for (unsigned i = 0; i < 256; ++i) {
    const auto wanted = bytes[i][0];
    const auto without_nan = [](unsigned byte) {
      return (byte & 0x7fU) == 0x7f ? 0x7fU : byte;
    };
    EXPECT_EQ(without_nan(back[i] & 0xffU), without_nan(wanted & 0xffU));
    EXPECT_EQ(without_nan(back[i] >> 8U), without_nan(wanted >> 8U));
  }
}

TEST(FloatInstructions, ApproximationsErrAsTheIsaPermits) {
  Inputs<float> all;
  for (int i = 1; i <= 1000; ++i)
    all.push_back({static_cast<float>(i) * 0.013F, static_cast<float>(i), 0});
  const auto most = [&](const std::string& text, double (*exact)(double),
                        bool is_noisy) {
    const auto got = run<float>(text, all, {.seed = 7, .is_noisy = is_noisy});
    double error = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double wanted = exact(all[i][0]);
      error = std::max(error, std::fabs(got[i] - wanted) / wanted);
    }
    return error;
  };
  const auto exp2 = [](double v) { return std::exp2(v); };
  EXPECT_LT(most("ex2.approx.ftz.f32 %d, %a;", exp2, false), 0x1p-23);
  const double noisy = most("ex2.approx.ftz.f32 %d, %a;", exp2, true);
  EXPECT_GT(noisy, 0x1p-23);
  EXPECT_LT(noisy, 0x1p-21);
  EXPECT_LT(most(
                "rcp.approx.ftz.f32 %d, %a;", [](double v) { return 1 / v; }, true),
            0x1p-22);
  EXPECT_LT(
      most(
          "rsqrt.approx.f32 %d, %a;", [](double v) { return 1 / std::sqrt(v); }, true),
      0x1p-21);
}

}  // namespace
}  // namespace kiln::ptx::test
