// The asm statements of templates/prelude, as NVRTC has them in PTX: what each computes
// is what the host computes, and no damaged form of one does.

#include <cmath>
#include <iostream>
#include <map>
#include <regex>

#include "render/catalog.h"
#include "tests/support/kernels/compile_to_ptx.h"
#include "tests/support/ptx/arena.h"
#include "tests/support/ptx/numbers.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

struct Target {
  std::string element;
  device::ComputeCapability capability;
};
const std::vector<Target> kTargets{{"f16", {7, 5}}, {"f16", {8, 0}}, {"bf16", {8, 0}}};

constexpr unsigned kWarp = 32;
// Where the parts of the output begin, in words.
constexpr unsigned kExp2 = 128;
constexpr unsigned kReciprocal = 160;
constexpr unsigned kRsqrt = 192;
constexpr unsigned kHalf = 224;
constexpr unsigned kBfloat = 256;
constexpr unsigned kStreamed = 288;
constexpr unsigned kPair = 416;
constexpr unsigned kWords = 448;

/// With every asm statement for the type.
std::string source_of(const std::string& element) {
  return std::string(templates::embedded().prelude) + "using T = kiln_" + element + R"(;
KILN_KERNEL(32, 1)
all(kiln_u32* out, const T* in, const float* x) {
  KILN_SHARED(kiln_words<16>, tile, 64);
  const int lane = kiln_thread();
  kiln_copy_async(tile + lane, in + 8 * lane, lane < 31);
  kiln_copy_commit();
  kiln_copy_async(tile + 32 + lane, in + 256 + 8 * lane, true);
  kiln_copy_commit();
  kiln_copy_wait<1>();
  kiln_sync_threads();
  kiln_u32 a[4];
  kiln_u32 b[4];
  kiln_matrix_load(a, tile + lane);
  kiln_copy_wait<0>();
  kiln_sync_threads();
  kiln_matrix_load_transposed(b, tile + 32 + lane);
  float d[4] = {};
  kiln_multiply_k16<T>(d, a, b[0], b[1]);
  kiln_multiply_k8<T>(d, a[0], a[1], b[2]);
  for (int i = 0; i < 4; ++i) {
    out[4 * lane + i] = kiln_bits(d[i]);
  }
  out[128 + lane] = kiln_bits(kiln_exp2_approx(x[lane]));
  out[160 + lane] = kiln_bits(kiln_reciprocal(x[lane]));
  out[192 + lane] = kiln_bits(kiln_rsqrt_approx(x[lane]));
  out[224 + lane] = kiln_bits(kiln_f16_to_float(kiln_float_to_f16(x[lane])));
  out[256 + lane] = kiln_float_to_bf16(x[lane]);
  kiln_words<16> words;
  for (int i = 0; i < 4; ++i) {
    words.word[i] = 4 * lane + i;
  }
  kiln_store_streaming<16>(out + 288 + 4 * lane, words);
  const float pair[2] = {x[lane], x[lane] + 1.0f};
  out[416 + lane] = kiln_element<T>::put(pair);
}
)";
}

/// Small whole numbers.
int factor(unsigned index) {
  return static_cast<int>(index * 37 % 11) - 5;
}
float operand(unsigned lane) {
  return 0.37F + 0.731F * static_cast<float>(lane);
}

std::uint16_t encode(const std::string& element, float value) {
  return element == "f16" ? ptx::to_half(value).bits : ptx::to_bfloat(value).bits;
}

float product(unsigned row, unsigned column) {
  // Of the first tile the last row is not there.
  const auto a = [](unsigned tile_row, unsigned k) {
    return tile_row == 31 ? 0 : factor(8 * tile_row + k);
  };
  const auto b = [](unsigned tile_row, unsigned k) {
    return factor(256 + 8 * tile_row + k);
  };
  int sum = 0;
  for (unsigned k = 0; k < 8; ++k)
    sum += a(row, k) * (b(k, column) + b(16 + k, column)) +
           a(16 + row, k) * b(8 + k, column);
  return static_cast<float>(sum);
}

/// The first word that is not what the host computes; "" where all are.
std::string wrong_word(const std::string& element,
                       const std::vector<std::uint32_t>& words) {
  const auto differs = [&](unsigned at, float wanted, float error) {
    const auto got = std::bit_cast<float>(words[at]);
    return !(std::fabs(got - wanted) <= error * std::fabs(wanted));
  };
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const float x = operand(lane);
    for (unsigned i = 0; i < 4; ++i) {
      if (differs(4 * lane + i, product(lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2),
                  0))
        return "the product";
      if (words[kStreamed + 4 * lane + i] != 4 * lane + i)
        return "what is stored";
    }
    constexpr float kUlp = 0x1p-23F;
    if (differs(kExp2 + lane, std::exp2(x), 2 * kUlp))
      return "2^x";
    if (differs(kReciprocal + lane, 1 / x, kUlp))
      return "1 / x";
    if (differs(kRsqrt + lane, 1 / std::sqrt(x), 2 * kUlp))
      return "1 / sqrt(x)";
    if (differs(kHalf + lane, ptx::to_float(ptx::to_half(x)), 0))
      return "x as f16";
    if (words[kBfloat + lane] != ptx::to_bfloat(x).bits)
      return "x as bf16";
    const std::uint32_t high = encode(element, x + 1.0F);
    if (words[kPair + lane] != (high << 16U | encode(element, x)))
      return "a pair";
  }
  return "";
}

/// What is wrong of the kernel's results, or a fault.
std::string run(const std::string& element, std::string text) {
  const auto program = ptx::decode(std::move(text));
  if (!program)
    return "refused: " + program.error();
  std::vector<std::uint16_t> in(512);
  for (unsigned i = 0; i < in.size(); ++i)
    in[i] = encode(element, static_cast<float>(factor(i)));
  std::vector<float> x(kWarp);
  for (unsigned i = 0; i < kWarp; ++i) x[i] = operand(i);
  ptx::Arena arena;
  const std::uint64_t out = arena.reserve(4 * kWords);
  ptx::Parameters parameters;
  parameters.add(out)
      .add(arena.add(std::span<const std::uint16_t>(in), true))
      .add(arena.add(std::span<const float>(x), true));
  ptx::Report report;
  const auto done = ptx::launch(
      **program,
      {.entry = "all", .block = {kWarp, 1, 1}, .parameters = parameters.bytes()}, {},
      arena, {}, {}, report);
  if (!done)
    return done.error().why;
  return wrong_word(element, arena.read<std::uint32_t>(out, kWords));
}

/// A damaged form of each place that `pattern` finds.
struct Damage {
  std::string name;
  std::string pattern;
  std::string replacement;
};

std::vector<Damage> damages() {
  const std::string r = R"((%\w+))";
  const std::string two = R"(\{(%\w+), (%\w+)\})";
  const std::string four = R"(\{(%\w+), (%\w+), (%\w+), (%\w+)\})";
  const auto k16 = [&](const std::string& type) {
    return "(mma\\.sync\\.aligned\\.m16n8k16\\S+" + type + "\\.f32)\\s+" + four +
           ",\\s*" + four + ",\\s*" + two + ",\\s*" + four;
  };
  const auto k8 = [&](const std::string& type) {
    return "(mma\\.sync\\.aligned\\.m16n8k8\\S+" + type + "\\.f32)\\s+" + four +
           ",\\s*" + two;
  };
  const auto pair = [&](const std::string& type) {
    return "(cvt\\.rn\\." + type + "x2\\.f32)\\s+" + r + ",\\s*" + r + ",\\s*" + r;
  };
  const std::string of_k16 =
      "$1 {$2, $3, $4, $5}, {$6, $8, $7, $9}, {$10, $11}, {$12, $13, $14, $15}";
  return {
      {"cvt.f32.f16 that takes it for a bf16", R"(cvt\.f32\.f16)", "cvt.f32.bf16"},
      {"cvt.rn.f16.f32 to zero", R"(cvt\.rn\.f16\.f32)", "cvt.rz.f16.f32"},
      {"cvt.rn.bf16.f32 to zero", R"(cvt\.rn\.bf16\.f32)", "cvt.rz.bf16.f32"},
      {"cvt.rn.f16x2.f32 with its sources exchanged", pair("f16"), "$1 $2, $4, $3"},
      {"cvt.rn.bf16x2.f32 with its sources exchanged", pair("bf16"), "$1 $2, $4, $3"},
      {"ex2 of the opposite", "ex2\\.approx\\.ftz\\.f32\\s+" + r + ",\\s*" + r,
       "neg.f32 $1, $2; ex2.approx.ftz.f32 $1, $1"},
      {"rcp that does nothing", "rcp\\.approx\\.ftz\\.f32\\s+" + r + ",\\s*" + r,
       "mov.f32 $1, $2"},
      {"rsqrt without its root", R"(rsqrt\.approx\.ftz\.f32)", "rcp.approx.ftz.f32"},
      {"st.global.cs with two registers exchanged",
       "(st\\.global\\.cs\\S+\\s+\\S+)\\s+" + four, "$1 {$2, $4, $3, $5}"},
      {"ldmatrix without .trans", R"(x4\.trans)", "x4"},
      {"ldmatrix with .trans", R"(x4\.shared)", "x4.trans.shared"},
      {"mma k16 of f16 with a1 and a2 exchanged", k16("f16"), of_k16},
      {"mma k16 of bf16 with a1 and a2 exchanged", k16("bf16"), of_k16},
      {"mma k8 of f16 with a0 and a1 exchanged", k8("\\.f16"),
       "$1 {$2, $3, $4, $5}, {$7, $6}"},
      {"mma k8 of bf16 with a0 and a1 exchanged", k8("\\.bf16"),
       "$1 {$2, $3, $4, $5}, {$7, $6}"},
      {"cp.async that always copies",
       R"((cp\.async\.cg\S+\s+\[[^\]]+\], \[[^\]]+\], 16), %\w+)", "$1"},
      {"cp.async without commit", R"(cp\.async\.commit_group;)", ""},
      {"cp.async without wait", R"(cp\.async\.wait_group \d+;)", ""},
  };
}

TEST(PreludeAsPtx, ComputesWhatTheHostDoesAndNoDamagedFormOfItDoes) {
  if (!test::can_compile_ptx())
    GTEST_SKIP() << "no NVRTC on this machine";
  std::map<std::string, std::size_t> places;
  for (const Target& target : kTargets) {
    SCOPED_TRACE(target.element + " for " + to_string(target.capability));
    const auto text =
        test::compile_to_ptx(source_of(target.element), target.capability);
    ASSERT_TRUE(text) << text.error().message;
    ASSERT_EQ(run(target.element, *text), "");
    for (const Damage& damage : damages()) {
      const std::regex pattern(damage.pattern);
      if (!std::regex_search(*text, pattern))
        continue;
      ++places[damage.name];
      const std::string found =
          run(target.element, std::regex_replace(*text, pattern, damage.replacement));
      EXPECT_THAT(found, AllOf(Not(""), Not(StartsWith("refused"))))
          << damage.name << " is not found";
      std::cout << damage.name << ": found by " << found.substr(0, 80) << "\n";
    }
  }
  for (const Damage& damage : damages())
    EXPECT_GT(places[damage.name], 0U) << damage.name << " is nowhere";
  const std::string prelude(templates::embedded().prelude);
  const std::regex statement(R"(asm( volatile)?\("[^"])");
  const auto statements =
      std::distance(std::sregex_iterator(prelude.begin(), prelude.end(), statement),
                    std::sregex_iterator());
  EXPECT_EQ(static_cast<std::size_t>(statements), damages().size())
      << "a statement of the prelude has no damaged form";
}

TEST(PreludeAsPtx, TensorCoresAndCopiesAreTheInstructionsThatTheTargetHas) {
  if (!test::can_compile_ptx())
    GTEST_SKIP() << "no NVRTC on this machine";
  const auto has = [](const std::string& element,
                      device::ComputeCapability capability) {
    return test::compile_to_ptx(source_of(element), capability).value();
  };
  for (const std::string element : {"f16", "bf16"}) {
    for (const device::ComputeCapability capability :
         {device::ComputeCapability{8, 0}, {9, 0}, {10, 0}, {12, 0}}) {
      SCOPED_TRACE(element + " " + to_string(capability));
      const std::string type = element + "." + element + ".f32";
      EXPECT_THAT(
          has(element, capability),
          AllOf(HasSubstr("ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
                HasSubstr("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
                HasSubstr("mma.sync.aligned.m16n8k16.row.col.f32." + type),
                HasSubstr("mma.sync.aligned.m16n8k8.row.col.f32." + type),
                HasSubstr("cp.async.cg.shared.global"),
                HasSubstr("cp.async.commit_group"), HasSubstr("cp.async.wait_group")));
    }
  }
  EXPECT_THAT(has("f16", {7, 5}),
              AllOf(HasSubstr("ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
                    HasSubstr("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"),
                    Not(HasSubstr("m16n8k16")), Not(HasSubstr("cp.async"))));
}

}  // namespace
}  // namespace kiln
