// Each instruction that the interpreter runs for a lane, beside a device: the same
// inputs, at edges and at random, and all forms of it. Without a device it only runs
// here.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "tests/unit/ptx/inputs.h"

namespace kiln::ptx::test {
namespace {

using Texts = std::vector<std::string>;

template <typename Out, typename In>
void compare_each(const Texts& texts, const Nearness& near = {}) {
  for (const auto& text : texts)
    std::ignore = run<Out>(text, of_every_kind<In>(), {}, near);
}
/// "{}" in each text is the type.
template <typename Out, typename In>
void compare_each_of(const std::string& type, const Texts& texts) {
  for (const auto& text : texts)
    compare_each<Out, In>({fmt::format(fmt::runtime(text), type)});
}
/// `see` is called with each size of integers and its C++ type.
template <typename See>
void for_integers(const See& see) {
  see("16", U16{});
  see("32", U32{});
  see("64", U64{});
}

const Texts kRoundings{"rn", "rz", "rm", "rp"};

TEST(PtxInstructions, OfIntegers) {
  for_integers([](const std::string& bits, auto zero) {
    using T = decltype(zero);
    for (const char* sign : {"u", "s"})
      compare_each_of<T, T>(
          sign + bits,
          {"add.{} %d, %a, %b;", "sub.{} %d, %a, %b;", "mul.lo.{} %d, %a, %b;",
           "mul.hi.{} %d, %a, %b;", "min.{} %d, %a, %b;", "max.{} %d, %a, %b;",
           "mad.lo.{} %d, %a, %b, %c;", "mad.hi.{} %d, %a, %b, %c;",
           "sad.{} %d, %a, %b, %c;", "mov.b32 %x, 33; shr.{} %d, %a, %x;"});
    // By 0 the ISA says nothing.
    compare_each<T, T>({fmt::format("or.b{0} %b, %b, 1; div.u{0} %d, %a, %b;", bits),
                        fmt::format("or.b{0} %b, %b, 1; rem.u{0} %d, %a, %b;", bits),
                        fmt::format("or.b{0} %b, %b, 1; div.s{0} %d, %a, %b;", bits),
                        fmt::format("or.b{0} %b, %b, 1; rem.s{0} %d, %a, %b;", bits)});
    compare_each_of<T, T>(
        bits, {"abs.s{} %d, %a;", "neg.s{} %d, %a;", "not.b{} %d, %a;",
               "cnot.b{} %d, %a;", "and.b{} %d, %a, %b;", "xor.b{} %d, %a, %b;"});
    if constexpr (sizeof(T) > 2) {
      compare_each_of<U32, T>(
          bits, {"popc.b{} %d, %a;", "clz.b{} %d, %a;", "bfind.u{} %d, %a;",
                 "bfind.s{} %d, %a;", "bfind.shiftamt.s{} %d, %a;"});
      // The ISA looks at 8 bits of a place and a length, the driver's assembler of CUDA
      // 13.0 for 64 bits at all.
      const std::string narrow = fmt::format(
          "cvt.u32.u{0} %x, %b; and.b32 %x, %x, 255; "
          "cvt.u32.u{0} %y, %c; and.b32 %y, %y, 255; ",
          bits);
      compare_each_of<T, T>(
          bits, {"brev.b{} %d, %a;", narrow + "bfe.u{} %d, %a, %x, %y;",
                 narrow + "bfe.s{} %d, %a, %x, %y;", narrow + "shl.b{} %d, %a, %x;",
                 narrow + "bfi.b{} %d, %a, %b, %x, %y;"});
    }
  });
  for (const char* compared : {"eq", "ne", "lt", "le", "gt", "ge"})
    compare_each_of<U32, U32>(
        compared, {"set.{}.u32.s32 %d, %a, %b;", "set.{}.f32.s32 %d, %a, %b;"});
  for (const char* compared : {"lo", "ls", "hi", "hs"})
    compare_each_of<U32, U32>(compared, {"set.{}.u32.u32 %d, %a, %b;"});
}

TEST(PtxInstructions, OfWordsOfBits) {
  compare_each<U32, U32>(
      {"add.sat.s32 %d, %a, %b;", "sub.sat.s32 %d, %a, %b;",
       "mad.hi.sat.s32 %d, %a, %b, %c;", "mul24.lo.u32 %d, %a, %b;",
       "mul24.hi.s32 %d, %a, %b;", "mad24.lo.s32 %d, %a, %b, %c;",
       "dp4a.u32.s32 %d, %a, %b, %c;", "dp4a.s32.s32 %d, %a, %b, %c;",
       "dp2a.lo.u32.s32 %d, %a, %b, %c;", "dp2a.hi.s32.u32 %d, %a, %b, %c;",
       "bmsk.clamp.b32 %d, %a, %b;", "bmsk.wrap.b32 %d, %a, %b;",
       "szext.clamp.s32 %d, %a, %b;", "szext.wrap.u32 %d, %a, %b;",
       "lop3.b32 %d, %a, %b, %c, 0xe8;", "lop3.b32 %d, %a, %b, %c, 0x1d;",
       // Elsewhere the ISA says nothing.
       "and.b32 %b, %b, 31; cvt.s32.s8 %c, %c; fns.b32 %d, %a, %b, %c;",
       "add.cc.u32 %x, %a, %b; addc.u32 %d, %c, 0;",
       "sub.cc.u32 %x, %a, %b; subc.u32 %d, %c, 5;",
       "mad.lo.cc.u32 %x, %a, %b, %c; madc.hi.u32 %d, %a, %b, 0;",
       "slct.u32.s32 %d, %a, %b, %c;", "slct.u32.f32 %d, %a, %b, %c;",
       "slct.ftz.u32.f32 %d, %a, %b, %c;", "add.u16x2 %d, %a, %b;",
       "min.s16x2 %d, %a, %b;", "max.u16x2 %d, %a, %b;", "min.relu.s32 %d, %a, %b;"});
  for (const char* words : {"2", "4"}) {
    compare_each_of<U32, U32>(
        words,
        {"vadd{}.u32.u32.u32 %d, %a, %b, %c;", "vadd{}.s32.s32.s32.sat %d, %a, %b, %c;",
         "vsub{}.u32.u32.u32.sat %d, %a, %b, %c;",
         "vavrg{}.u32.u32.u32 %d, %a, %b, %c;", "vavrg{}.s32.s32.s32 %d, %a, %b, %c;",
         "vabsdiff{}.u32.u32.u32 %d, %a, %b, %c;",
         "vabsdiff{}.u32.s32.s32 %d, %a, %b, %c;",
         "vabsdiff{}.u32.u32.u32.add %d, %a, %b, %c;",
         "vmin{}.s32.s32.s32 %d, %a, %b, %c;", "vmax{}.u32.u32.u32 %d, %a, %b, %c;"});
  }
  for (const char* mode : {"", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"})
    compare_each_of<U32, U32>(mode, {"prmt.b32{} %d, %a, %b, %c;"});
  for (const char* way : {"l.clamp", "r.clamp", "l.wrap", "r.wrap"})
    compare_each_of<U32, U32>(way, {"shf.{}.b32 %d, %a, %b, %c;"});
}

TEST(PtxInstructions, OfFloats) {
  for (const auto& rounding : kRoundings) {
    for (const char* how : {"", ".ftz", ".sat", ".ftz.sat"})
      compare_each_of<float, float>(
          rounding + how, {"add.{}.f32 %d, %a, %b;", "sub.{}.f32 %d, %a, %b;",
                           "mul.{}.f32 %d, %a, %b;", "fma.{}.f32 %d, %a, %b, %c;"});
    for (const char* how : {"", ".ftz"})
      compare_each_of<float, float>(
          rounding + how,
          {"div.{}.f32 %d, %a, %b;", "rcp.{}.f32 %d, %a;", "sqrt.{}.f32 %d, %a;"});
    compare_each_of<double, double>(
        rounding,
        {"add.{}.f64 %d, %a, %b;", "sub.{}.f64 %d, %a, %b;", "mul.{}.f64 %d, %a, %b;",
         "fma.{}.f64 %d, %a, %b, %c;", "div.{}.f64 %d, %a, %b;", "rcp.{}.f64 %d, %a;",
         "sqrt.{}.f64 %d, %a;"});
  }
  for (const char* how :
       {"", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs"})
    compare_each_of<float, float>(how,
                                  {"min{}.f32 %d, %a, %b;", "max{}.f32 %d, %a, %b;"});
  compare_each<float, float>({"abs.f32 %d, %a;", "abs.ftz.f32 %d, %a;",
                              "neg.f32 %d, %a;", "neg.ftz.f32 %d, %a;",
                              "copysign.f32 %d, %a, %b;"});
  compare_each<double, double>({"min.f64 %d, %a, %b;", "max.f64 %d, %a, %b;",
                                "abs.f64 %d, %a;", "neg.f64 %d, %a;",
                                "copysign.f64 %d, %a, %b;"});
  for (const char* kind :
       {"finite", "infinite", "number", "notanumber", "normal", "subnormal"}) {
    compare_each_of<U32, float>(kind, {"testp.{}.f32 %p, %a; selp.b32 %d, 1, 0, %p;"});
    compare_each_of<U32, double>(kind, {"testp.{}.f64 %p, %a; selp.b32 %d, 1, 0, %p;"});
  }
  for (const char* compared : {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu",
                               "leu", "gtu", "geu", "num", "nan"}) {
    compare_each_of<U32, float>(
        compared, {"set.{}.u32.f32 %d, %a, %b;", "set.{}.ftz.f32.f32 %d, %a, %b;"});
    compare_each_of<U32, double>(compared, {"set.{}.u32.f64 %d, %a, %b;"});
    compare_each_of<U32, H16>(
        compared, {"set.{}.u32.f16 %d, %a, %b;", "set.{}.u32.bf16 %d, %a, %b;",
                   "set.{}.ftz.u32.f16 %d, %a, %b;"});
    compare_each_of<U32, U32>(compared, {"set.{}.f16x2.f16x2 %d, %a, %b;"});
  }
}

TEST(PtxInstructions, OfHalves) {
  for (const char* type : {"f16", "bf16"}) {
    compare_each_of<H16, H16>(
        type,
        {"add.rn.{} %d, %a, %b;", "sub.rn.{} %d, %a, %b;", "mul.rn.{} %d, %a, %b;",
         "fma.rn.{} %d, %a, %b, %c;", "fma.rn.relu.{} %d, %a, %b, %c;",
         "min.{} %d, %a, %b;", "max.NaN.{} %d, %a, %b;",
         "min.xorsign.abs.{} %d, %a, %b;", "abs.{} %d, %a;", "neg.{} %d, %a;"});
    compare_each_of<U32, U32>(
        type, {"add.rn.{}x2 %d, %a, %b;", "sub.rn.{}x2 %d, %a, %b;",
               "mul.rn.{}x2 %d, %a, %b;", "fma.rn.{}x2 %d, %a, %b, %c;",
               "min.{}x2 %d, %a, %b;", "max.NaN.{}x2 %d, %a, %b;", "abs.{}x2 %d, %a;",
               "neg.{}x2 %d, %a;"});
  }
  compare_each<H16, H16>({"add.ftz.f16 %d, %a, %b;", "mul.ftz.sat.f16 %d, %a, %b;",
                          "fma.rn.ftz.f16 %d, %a, %b, %c;",
                          "fma.rn.sat.f16 %d, %a, %b, %c;"});
}

TEST(PtxInstructions, ThatConvertIntegers) {
  for_integers([](const std::string& to, auto to_zero) {
    for_integers([&](const std::string& from, auto from_zero) {
      for (const std::string signs : {"ss", "su", "us", "uu"}) {
        const auto types = fmt::format("{}{}.{}{}", signs[0], to, signs[1], from);
        compare_each_of<decltype(to_zero), decltype(from_zero)>(types,
                                                                {"cvt.{} %d, %a;"});
        // Where there is something to saturate.
        if (to < from || signs == "us" || (signs == "su" && to == from))
          compare_each_of<decltype(to_zero), decltype(from_zero)>(
              types, {"cvt.sat.{} %d, %a;"});
      }
    });
    for (const char* type : {"s8", "u8"}) {
      const auto types = fmt::format("{}.s{}", type, to);
      compare_each_of<U32, decltype(to_zero)>(types,
                                              {"cvt.{} %d, %a;", "cvt.sat.{} %d, %a;"});
    }
  });
}

TEST(PtxInstructions, ThatConvertFloats) {
  for (const auto& rounding : kRoundings) {
    compare_each_of<float, double>(
        rounding, {"cvt.{}.f32.f64 %d, %a;", "cvt.{}.ftz.sat.f32.f64 %d, %a;"});
    compare_each_of<float, float>(
        rounding, {"cvt.{}i.f32.f32 %d, %a;", "cvt.{}i.ftz.f32.f32 %d, %a;"});
    compare_each_of<double, double>(rounding, {"cvt.{}i.f64.f64 %d, %a;"});
    compare_each_of<H16, H16>(rounding, {"cvt.{}i.f16.f16 %d, %a;"});
    compare_each_of<H16, float>(rounding,
                                {"cvt.{}.f16.f32 %d, %a;", "cvt.{}.bf16.f32 %d, %a;",
                                 "cvt.{}.sat.f16.f32 %d, %a;"});
    compare_each_of<H16, double>(rounding, {"cvt.{}.f16.f64 %d, %a;"});
    compare_each_of<U32, float>(rounding,
                                {"cvt.{}i.s8.f32 %d, %a;", "cvt.{}i.u8.f32 %d, %a;"});
    compare_each_of<U32, double>(rounding,
                                 {"cvt.{}i.s8.f64 %d, %a;", "cvt.{}i.u8.f64 %d, %a;"});
    for_integers([&](const std::string& bits, auto zero) {
      using T = decltype(zero);
      for (const char* sign : {"s", "u"}) {
        const auto integer = sign + bits;
        compare_each_of<float, T>(integer, {"cvt." + rounding + ".f32.{} %d, %a;"});
        compare_each_of<double, T>(integer, {"cvt." + rounding + ".f64.{} %d, %a;"});
        compare_each_of<T, double>(integer, {"cvt." + rounding + "i.{}.f64 %d, %a;"});
        compare_each_of<T, float>(integer,
                                  {"cvt." + rounding + "i.{}.f32 %d, %a;",
                                   "cvt." + rounding + "i.ftz.sat.{}.f32 %d, %a;"});
        compare_each_of<T, H16>(integer, {"cvt." + rounding + "i.{}.f16 %d, %a;",
                                          "cvt." + rounding + "i.{}.bf16 %d, %a;"});
        compare_each_of<H16, T>(integer, {"cvt." + rounding + ".f16.{} %d, %a;",
                                          "cvt." + rounding + ".bf16.{} %d, %a;"});
      }
    });
  }
  compare_each<float, H16>(
      {"cvt.f32.f16 %d, %a;", "cvt.ftz.f32.f16 %d, %a;", "cvt.f32.bf16 %d, %a;"});
  compare_each<double, H16>({"cvt.f64.f16 %d, %a;"});
  compare_each<double, float>({"cvt.f64.f32 %d, %a;", "cvt.ftz.f64.f32 %d, %a;"});
}

// Each lane at a place of its own.
TEST(PtxInstructions, ThatUpdateMemory) {
  const auto compare = [](auto zero, const std::string& type, const Texts& updates) {
    using T = decltype(zero);
    for (const char* space : {".global", ""}) {
      for (const auto& update : updates)
        compare_each<T, T>({fmt::format("mov.u32 %x, %tid.x; mul.wide.u32 %l, %x, {0};"
                                        "add.u64 %l, %o, %l; st.global.b{1} [%l], %a;",
                                        sizeof(T), 8 * sizeof(T)) +
                            fmt::format(fmt::runtime(update), space, type) +
                            fmt::format("ld.global.b{} %d, [%l];", 8 * sizeof(T))});
    }
  };
  const Texts of_numbers{"red{}.add.{} [%l], %b;", "atom{}.add.{} %d, [%l], %b;"};
  const Texts of_integers{"atom{}.add.{} %d, [%l], %b;", "atom{}.min.{} %d, [%l], %b;",
                          "red{}.max.{} [%l], %b;"};
  const Texts of_bits{"atom{}.and.{} %d, [%l], %b;", "atom{}.or.{} %d, [%l], %b;",
                      "red{}.xor.{} [%l], %b;", "atom{}.exch.{} %d, [%l], %b;",
                      "atom{}.cas.{} %d, [%l], %b, %c;"};
  compare(float{}, "f32", of_numbers);
  compare(double{}, "f64", of_numbers);
  compare(H16{}, "noftz.f16", of_numbers);
  compare(H16{}, "noftz.bf16", of_numbers);
  compare(U32{}, "noftz.f16x2", of_numbers);
  compare(U32{}, "noftz.bf16x2", of_numbers);
  for (const char* type : {"u32", "s32"}) compare(U32{}, type, of_integers);
  compare(U32{}, "u32", {"atom{}.inc.{} %d, [%l], %b;", "atom{}.dec.{} %d, [%l], %b;"});
  compare(U64{}, "u64", of_integers);
  compare(U32{}, "b32", of_bits);
  compare(U64{}, "b64", of_bits);
}

TEST(PtxInstructions, ThatPackNumbersOfFewBits) {
  compare_each<U32, float>(
      {"cvt.rn.f16x2.f32 %d, %a, %b;", "cvt.rz.f16x2.f32 %d, %a, %b;",
       "cvt.rn.relu.f16x2.f32 %d, %a, %b;", "cvt.rn.satfinite.f16x2.f32 %d, %a, %b;",
       "cvt.rn.bf16x2.f32 %d, %a, %b;", "cvt.rz.relu.bf16x2.f32 %d, %a, %b;"});
  // Which NaN it is differs.
  for (const char* how : {"rna", "rna.satfinite", "rn", "rz"})
    compare_each_of<U32, float>(how, {"testp.notanumber.f32 %p, %a; mov.b32 %d, 0;"
                                      "@!%p cvt.{}.tf32.f32 %d, %a;"});
  for (const char* type : {"e4m3x2", "e5m2x2"}) {
    compare_each_of<H16, float>(type, {"cvt.rn.satfinite.{}.f32 %d, %a, %b;",
                                       "cvt.rn.satfinite.relu.{}.f32 %d, %a, %b;"});
    compare_each_of<H16, U32>(type, {"cvt.rn.satfinite.{}.f16x2 %d, %a;"});
    compare_each_of<U32, H16>(
        type, {"cvt.rn.f16x2.{} %d, %a;", "cvt.rn.relu.f16x2.{} %d, %a;"});
  }
  compare_each<H16, float>(
      {"cvt.rn.relu.f16.f32 %d, %a;", "cvt.rn.relu.bf16.f32 %d, %a;"});
}

// The errors are those that the PTX ISA names for each instruction.
TEST(PtxInstructions, ThatApproximate) {
  compare_each<float, float>({"rcp.approx.f32 %d, %a;", "rcp.approx.ftz.f32 %d, %a;",
                              "sqrt.approx.f32 %d, %a;", "sqrt.approx.ftz.f32 %d, %a;"},
                             {.units = 1});
  compare_each<float, float>({"rsqrt.approx.f32 %d, %a;",
                              "rsqrt.approx.ftz.f32 %d, %a;", "ex2.approx.f32 %d, %a;",
                              "ex2.approx.ftz.f32 %d, %a;", "div.full.f32 %d, %a, %b;"},
                             {.units = 2});
  compare_each<float, float>({"lg2.approx.f32 %d, %a;", "lg2.approx.ftz.f32 %d, %a;"},
                             {.units = 3, .absolute = 0x1p-22});
  compare_each<float, float>({"tanh.approx.f32 %d, %a;"}, {.units = 1U << 13U});
  compare_each<H16, H16>({"ex2.approx.f16 %d, %a;", "ex2.approx.ftz.bf16 %d, %a;",
                          "tanh.approx.f16 %d, %a;", "tanh.approx.bf16 %d, %a;"},
                         {.units = 2, .bytes = 2});
  compare_each<U32, U32>({"ex2.approx.f16x2 %d, %a;", "ex2.approx.ftz.bf16x2 %d, %a;",
                          "tanh.approx.f16x2 %d, %a;", "tanh.approx.bf16x2 %d, %a;"},
                         {.units = 2, .bytes = 2});
  // Of divisors between 2^-126 and 2^126; of angles between -2 pi and 2 pi.
  Inputs<float> some;
  std::mt19937_64 random(4);
  while (some.size() < 1024) {
    const auto any = [&] { return static_cast<float>(random()) * 0x1p-64F * 12 - 6; };
    some.push_back({any(), any(), any()});
  }
  for (const char* text :
       {"div.approx.f32 %d, %a, %b;", "div.approx.ftz.f32 %d, %a, %b;"})
    std::ignore = run<float>(text, some, {}, {.units = 2});
  for (const char* text : {"sin.approx.f32 %d, %a;", "cos.approx.f32 %d, %a;"})
    std::ignore = run<float>(text, some, {}, {.absolute = 0x1p-20});
}

}  // namespace
}  // namespace kiln::ptx::test
