// Runs the body of a kernel for a block or more of threads, with memory to write to.

#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/ptx/arena.h"
#include "tests/unit/ptx/on_device.h"

namespace kiln::ptx::test {

/// How a body is run. Registers: %r<64>, %s<16> (32 bits), %d<32> (64 bits), %f<64>,
/// %h<16> (16 bits), %p<16>. %d0 is the address of `words` words of 32 bits, %r0 the
/// thread's number in its block, %r1 the block's.
struct Setting {
  std::string before{};  // the kernel: variables, functions
  Extent grid{1, 1, 1};
  Extent block{32, 1, 1};
  std::size_t words = 32;
  std::vector<std::uint32_t> initial{};  // of the first words
  std::size_t dynamic_shared_bytes = 0;
  Schedule schedule{};
  Checks checks{};
};

struct Outcome {
  int result = 0;
  std::string why{};
  std::vector<std::uint32_t> words{};
  Report report{};
};

inline std::string text_of(const std::string& before, const std::string& body) {
  return ".version 9.0\n.target sm_100\n.address_size 64\n" + before + R"(
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<64>; .reg .b32 %s<16>; .reg .b64 %d<32>; .reg .f32 %f<64>;
  .reg .b16 %h<16>; .reg .pred %p<16>;
  ld.param.u64 %d0, [out];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
)" + body +
         "\n  ret;\n}\n";
}

/// At the end of a body: %r2 of each thread, in the order of blocks and threads.
inline const char* const kStore = R"(
  mov.u32 %r60, %ntid.x;
  mad.lo.s32 %r61, %r1, %r60, %r0;
  mul.wide.u32 %d30, %r61, 4;
  add.s64 %d31, %d0, %d30;
  st.global.u32 [%d31], %r2;
)";

inline Outcome run(const std::string& body, Setting setting = {}) {
  Outcome outcome;
  const std::string kernel = text_of(setting.before, body);
  const auto program = decode(kernel);
  EXPECT_TRUE(program) << program.error();
  if (!program)
    return outcome;
  Arena arena;
  setting.initial.resize(setting.words);
  const std::uint64_t out =
      setting.initial == std::vector<std::uint32_t>(setting.words)
          ? arena.reserve(4 * setting.words)
          : arena.add(std::span<const std::uint32_t>(setting.initial));
  Parameters parameters;
  parameters.add(out);
  const auto done = launch(**program,
                           {.entry = "k",
                            .grid = setting.grid,
                            .block = setting.block,
                            .dynamic_shared_bytes = setting.dynamic_shared_bytes,
                            .parameters = parameters.bytes()},
                           {}, arena, setting.schedule, setting.checks, outcome.report);
  outcome.result = done ? 0 : done.error().result;
  outcome.why = done ? "" : done.error().why;
  outcome.words = arena.read<std::uint32_t>(out, setting.words);
  // Of another order, or of copies that were not waited for, a device has other words.
  if (done && outcome.report.notes.empty() && setting.schedule.seed == 0 &&
      setting.schedule.delays_copies)
    expect_as_on_device({.text = kernel,
                         .grid = setting.grid,
                         .block = setting.block,
                         .dynamic_shared_bytes = setting.dynamic_shared_bytes,
                         .initial = std::as_bytes(std::span(setting.initial))},
                        body, std::as_bytes(std::span(outcome.words)), 4);
  return outcome;
}

/// Why decode() refuses the body; "" where it does not.
inline std::string refusal_of(const std::string& body, const std::string& before = "") {
  const auto program = decode(text_of(before, body));
  return program ? "" : program.error();
}

/// The words under any order are those of lanes that go together.
inline void expect_words(const std::string& body, const Setting& setting,
                         const std::vector<std::uint32_t>& wanted) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    Setting some = setting;
    some.schedule.seed = seed;
    some.schedule.splits_warps = seed % 2 == 0;
    const Outcome outcome = run(body, some);
    EXPECT_EQ(outcome.why, "") << "seed " << seed;
    ASSERT_EQ(outcome.words, wanted) << "seed " << seed;
  }
}

template <typename F>
std::vector<std::uint32_t> each_of(unsigned count, const F& value) {
  std::vector<std::uint32_t> all;
  for (unsigned i = 0; i < count; ++i)
    all.push_back(static_cast<std::uint32_t>(value(i)));
  return all;
}

}  // namespace kiln::ptx::test
