// Each integer instruction against what C++ says of it, at edges and at random.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <random>

#include "tests/unit/ptx/inputs.h"

namespace kiln::ptx::test {
namespace {

template <typename Out, typename In>
void expect(const std::string& text, const std::function<Out(In, In, In)>& wanted) {
  const Inputs<In>& all = of_every_kind<In>();
  const std::vector<Out> got = run<Out>(text, all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [a, b, c] = all[i];
    ASSERT_EQ(+got[i], +wanted(a, b, c))
        << text << " of " << +a << ", " << +b << ", " << +c;
  }
}

using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

TEST(IntegerInstructions, AddSubtractAndMultiplyWrap) {
  expect<U16, U16>("add.u16 %d, %a, %b;", [](U16 a, U16 b, U16) { return U16(a + b); });
  expect<U32, U32>("add.s32 %d, %a, %b;", [](U32 a, U32 b, U32) { return a + b; });
  expect<U64, U64>("sub.s64 %d, %a, %b;", [](U64 a, U64 b, U64) { return a - b; });
  expect<U32, U32>("mul.lo.s32 %d, %a, %b;", [](U32 a, U32 b, U32) { return a * b; });
  expect<U16, U16>("mul.lo.u16 %d, %a, %b;",
                   [](U16 a, U16 b, U16) { return U16(U32{a} * b); });
  expect<U64, U64>("mad.lo.u64 %d, %a, %b, %c;",
                   [](U64 a, U64 b, U64 c) { return a * b + c; });
}

TEST(IntegerInstructions, AddAndSubtractSaturate) {
  const auto clamped = [](S64 value) {
    return S32(std::clamp<S64>(value, INT32_MIN, INT32_MAX));
  };
  expect<S32, S32>("add.sat.s32 %d, %a, %b;",
                   [&](S64 a, S64 b, S32) { return clamped(a + b); });
  expect<S32, S32>("sub.sat.s32 %d, %a, %b;",
                   [&](S64 a, S64 b, S32) { return clamped(a - b); });
}

TEST(IntegerInstructions, TheHighAndTheWideProduct) {
  expect<S32, S32>("mul.hi.s32 %d, %a, %b;",
                   [](S64 a, S64 b, S32) { return S32((a * b) >> 32); });
  expect<S32, S32>("mad.hi.sat.s32 %d, %a, %b, %c;", [](S32 a, S32 b, S32 c) {
    return static_cast<S32>(std::clamp<S64>((S64{a} * b >> 32) + c,
                                            std::numeric_limits<S32>::min(),
                                            std::numeric_limits<S32>::max()));
  });
  expect<U32, U32>("mul.hi.u32 %d, %a, %b;",
                   [](U64 a, U64 b, U32) { return U32((a * b) >> 32U); });
  expect<U64, U64>("mul.hi.u64 %d, %a, %b;", [](U64 a, U64 b, U64) {
    return U64((static_cast<unsigned __int128>(a) * b) >> 64U);
  });
  expect<S64, S64>("mul.hi.s64 %d, %a, %b;", [](S64 a, S64 b, S64) {
    return S64((static_cast<__int128>(a) * b) >> 64);
  });
  expect<S64, S32>("mul.wide.s32 %d, %a, %b;", [](S64 a, S64 b, S32) { return a * b; });
  expect<U32, U16>("mul.wide.u16 %d, %a, %b;", [](U32 a, U32 b, U16) { return a * b; });
  expect<S64, S32>("{.reg .b64 e; cvt.s64.s32 e, %c; mad.wide.s32 %d, %a, %b, e;}",
                   [](S64 a, S64 b, S32 c) { return a * b + c; });
}

TEST(IntegerInstructions, DivideAndRemain) {
  const auto overflows = [](auto a, auto b) {
    return a == std::numeric_limits<decltype(a)>::min() && b == decltype(b)(-1);
  };
  // By 0 the ISA says nothing: by 3 instead.
  const auto divisor = [](auto b) { return b == 0 ? decltype(b)(3) : b; };
  const std::string not_0 = "setp.eq.s{0} %p, %b, 0; @%p mov.b{0} %b, 3;";
  const auto of = [&](const std::string& text, int bits) {
    return fmt::format(fmt::runtime(not_0), bits) + text;
  };
  expect<S32, S32>(of("div.s32 %d, %a, %b;", 32), [&](S32 a, S32 b, S32) {
    return overflows(a, divisor(b)) ? a : a / divisor(b);
  });
  expect<U64, U64>(of("div.u64 %d, %a, %b;", 64),
                   [&](U64 a, U64 b, U64) { return a / divisor(b); });
  expect<S64, S64>(of("rem.s64 %d, %a, %b;", 64), [&](S64 a, S64 b, S64) {
    return overflows(a, divisor(b)) ? 0 : a % divisor(b);
  });
  expect<U16, U16>(of("rem.u16 %d, %a, %b;", 16),
                   [&](U16 a, U16 b, U16) { return U16(a % divisor(b)); });
}

TEST(IntegerInstructions, ExtremesAndMagnitudes) {
  expect<S32, S32>("min.s32 %d, %a, %b;",
                   [](S32 a, S32 b, S32) { return std::min(a, b); });
  expect<U32, U32>("max.u32 %d, %a, %b;",
                   [](U32 a, U32 b, U32) { return std::max(a, b); });
  expect<S64, S64>("max.s64 %d, %a, %b;",
                   [](S64 a, S64 b, S64) { return std::max(a, b); });
  expect<S32, S32>("abs.s32 %d, %a;",
                   [](S32 a, S32, S32) { return a < 0 ? S32(-U32(a)) : a; });
  expect<U64, U64>("neg.s64 %d, %a;", [](U64 a, U64, U64) { return -a; });
  expect<U32, U32>("sad.u32 %d, %a, %b, %c;",
                   [](U32 a, U32 b, U32 c) { return c + (a < b ? b - a : a - b); });
}

TEST(IntegerInstructions, OfSeveralNumbersInARegister) {
  const auto bytes = [](auto of) {
    return [of](U32 a, U32 b, U32) {
      U32 all = 0;
      for (unsigned at = 0; at < 32; at += 8)
        all |= U32(std::uint8_t(of(int(a >> at & 255U), int(b >> at & 255U)))) << at;
      return all;
    };
  };
  expect<U32, U32>("vabsdiff4.u32.u32.u32 %d, %a, %b, %c;",
                   bytes([](int a, int b) { return std::abs(a - b); }));
  expect<U32, U32>("vadd4.u32.u32.u32.sat %d, %a, %b, %c;",
                   bytes([](int a, int b) { return std::min(a + b, 255); }));
  expect<U32, U32>("vsub4.s32.s32.s32.sat %d, %a, %b, %c;", bytes([](int a, int b) {
                     return std::clamp(std::int8_t(a) - std::int8_t(b), -128, 127);
                   }));
  expect<U32, U32>("vavrg4.u32.u32.u32 %d, %a, %b, %c;",
                   bytes([](int a, int b) { return (a + b + 1) / 2; }));
  expect<U32, U32>("vabsdiff2.u32.u32.u32.add %d, %a, %b, %c;",
                   [](U32 a, U32 b, U32 c) {
                     const int low = int(a & 0xffffU) - int(b & 0xffffU);
                     const int high = int(a >> 16U) - int(b >> 16U);
                     return c + U32(std::abs(low)) + U32(std::abs(high));
                   });
}

TEST(IntegerInstructions, BitsAreCountedFoundAndReversed) {
  expect<U32, U32>("popc.b32 %d, %a;",
                   [](U32 a, U32, U32) { return U32(std::popcount(a)); });
  expect<U32, U64>("popc.b64 %d, %a;",
                   [](U64 a, U64, U64) { return U32(std::popcount(a)); });
  expect<U32, U32>("clz.b32 %d, %a;",
                   [](U32 a, U32, U32) { return U32(std::countl_zero(a)); });
  expect<U32, U64>("clz.b64 %d, %a;",
                   [](U64 a, U64, U64) { return U32(std::countl_zero(a)); });
  expect<U32, U32>("brev.b32 %d, %a;", [](U32 a, U32, U32) {
    U32 r = 0;
    for (unsigned i = 0; i < 32; ++i) r |= (a >> i & 1U) << (31 - i);
    return r;
  });
  expect<U32, U32>("bfind.u32 %d, %a;", [](U32 a, U32, U32) {
    return a == 0 ? ~0U : 31 - U32(std::countl_zero(a));
  });
  expect<U32, S32>("bfind.shiftamt.s32 %d, %a;", [](S32 a, S32, S32) {
    const U32 plain = U32(a < 0 ? ~a : a);
    return plain == 0 ? ~0U : U32(std::countl_zero(plain));
  });
}

TEST(IntegerInstructions, FieldsAreTakenOutAndPutIn) {
  expect<U32, U32>("bfe.u32 %d, %a, %b, %c;", [](U32 a, U32 b, U32 c) {
    U32 r = 0;
    for (U32 i = 0; i < 32 && i < (c & 255U); ++i) {
      if ((b & 255U) + i < 32)
        r |= (a >> ((b & 255U) + i) & 1U) << i;
    }
    return r;
  });
  expect<S32, S32>("bfe.s32 %d, %a, 4, 8;",
                   [](S32 a, S32, S32) { return S32(U32(a) << 20U) >> 24; });
  expect<U32, U32>("bfi.b32 %d, %a, %b, 5, 7;", [](U32 a, U32 b, U32) {
    return (b & ~(127U << 5U)) | ((a & 127U) << 5U);
  });
  expect<U64, U64>("bfi.b64 %d, %a, %b, 32, 32;",
                   [](U64 a, U64 b, U64) { return (b & 0xffffffffU) | a << 32U; });
  expect<U32, U32>("bmsk.clamp.b32 %d, 3, %c;", [](U32, U32, U32 c) {
    return c == 0 ? 0 : c >= 32 ? ~0U << 3U : ((1U << c) - 1) << 3U;
  });
  expect<S32, S32>("szext.clamp.s32 %d, %a, 12;",
                   [](S32 a, S32, S32) { return S32(U32(a) << 20U) >> 20; });
}

TEST(IntegerInstructions, LogicAndShifts) {
  expect<U32, U32>("and.b32 %d, %a, %b;", [](U32 a, U32 b, U32) { return a & b; });
  expect<U64, U64>("xor.b64 %d, %a, %b;", [](U64 a, U64 b, U64) { return a ^ b; });
  expect<U16, U16>("not.b16 %d, %a;", [](U16 a, U16, U16) { return U16(~a); });
  expect<U32, U32>("cnot.b32 %d, %a;", [](U32 a, U32, U32) { return U32(a == 0); });
  expect<U32, U32>("lop3.b32 %d, %a, %b, %c, 0x96;",
                   [](U32 a, U32 b, U32 c) { return a ^ b ^ c; });
  expect<U32, U32>("lop3.b32 %d, %a, %b, %c, 0xca;",
                   [](U32 a, U32 b, U32 c) { return (a & b) | (~a & c); });
  expect<U32, U32>("shl.b32 %d, %a, %b;",
                   [](U32 a, U32 b, U32) { return b > 31 ? 0 : a << b; });
  expect<S32, S32>("shr.s32 %d, %a, %b;",
                   [](S32 a, S32 b, S32) { return a >> std::min<U32>(U32(b), 31); });
  expect<U64, U64>("{.reg .b32 n; cvt.u32.u64 n, %b; shr.u64 %d, %a, n;}",
                   [](U64 a, U64 b, U64) { return U32(b) > 63 ? 0 : a >> U32(b); });
  expect<U32, U32>("shf.l.wrap.b32 %d, %a, %b, %c;", [](U32 a, U32 b, U32 c) {
    return U32((U64{b} << 32U | a) << (c & 31U) >> 32U);
  });
  expect<U32, U32>("shf.r.clamp.b32 %d, %a, %b, %c;", [](U32 a, U32 b, U32 c) {
    return U32((U64{b} << 32U | a) >> std::min(c, 32U));
  });
}

TEST(IntegerInstructions, SumsOfLongNumbersCarry) {
  expect<U64, U64>(
      "{.reg .b32 al, ah, bl, bh, l, h; mov.b64 {al, ah}, %a; mov.b64 {bl, bh}, %b;"
      " add.cc.u32 l, al, bl; addc.u32 h, ah, bh; mov.b64 %d, {l, h};}",
      [](U64 a, U64 b, U64) { return a + b; });
  expect<U64, U64>(
      "{.reg .b32 al, ah, bl, bh, l, h; mov.b64 {al, ah}, %a; mov.b64 {bl, bh}, %b;"
      " sub.cc.u32 l, al, bl; subc.u32 h, ah, bh; mov.b64 %d, {l, h};}",
      [](U64 a, U64 b, U64) { return a - b; });
  expect<U64, U64>(
      "{.reg .b32 al, ah, cl, ch, l, h; mov.b64 {al, ah}, %a; mov.b64 {cl, ch}, %c;"
      " mad.lo.cc.u32 l, al, 77, cl; madc.hi.u32 h, al, 77, ch; mov.b64 %d, {l, h};}",
      [](U64 a, U64, U64 c) { return (a & 0xffffffffU) * 77 + c; });
}

TEST(IntegerInstructions, BytesArePickedAndMultiplied) {
  expect<U32, U32>("prmt.b32 %d, %a, %b, 0x5410;",
                   [](U32 a, U32 b, U32) { return (a & 0xffffU) | b << 16U; });
  expect<U32, U32>("prmt.b32 %d, %a, %b, 0x9842;", [](U32 a, U32 b, U32) {
    const auto byte = [&](unsigned i) {
      return U32((U64{b} << 32U | a) >> (8 * i)) & 255U;
    };
    const auto sign = [&](unsigned i) { return (byte(i) & 128U) != 0 ? 255U : 0U; };
    return byte(2) | byte(4) << 8U | sign(0) << 16U | sign(1) << 24U;
  });
  expect<U32, U32>("prmt.b32.b4e %d, %a, %b, 1;", [](U32 a, U32 b, U32) {
    const auto byte = [&](unsigned i) {
      return U32((U64{b} << 32U | a) >> (8 * i)) & 255U;
    };
    return byte(1) | byte(0) << 8U | byte(7) << 16U | byte(6) << 24U;
  });
  expect<U32, U32>("dp4a.s32.u32 %d, %a, %b, %c;", [](U32 a, U32 b, U32 c) {
    for (unsigned i = 0; i < 32; i += 8)
      c += U32(int(std::int8_t(a >> i)) * int(b >> i & 255U));
    return c;
  });
}

TEST(IntegerInstructions, ConversionsExtendCutOrSaturate) {
  expect<S64, S32>("cvt.s64.s32 %d, %a;", [](S32 a, S32, S32) { return S64{a}; });
  expect<U32, U64>("cvt.u32.u64 %d, %a;", [](U64 a, U64, U64) { return U32(a); });
  expect<S32, S64>("cvt.sat.s32.s64 %d, %a;", [](S64 a, S64, S64) {
    return S32(std::clamp<S64>(a, INT32_MIN, INT32_MAX));
  });
  expect<S32, S32>("cvt.s32.s8 %d, %a;",
                   [](S32 a, S32, S32) { return S32{std::int8_t(a)}; });
  expect<U32, S32>("cvt.sat.u8.s32 %d, %a;",
                   [](S32 a, S32, S32) { return U32(std::clamp(a, 0, 255)); });
}

}  // namespace
}  // namespace kiln::ptx::test
