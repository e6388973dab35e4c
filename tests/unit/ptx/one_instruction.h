// Runs one instruction, or a few, for 32 lanes with inputs of their own.

#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/support/ptx/arena.h"
#include "tests/unit/ptx/on_device.h"

namespace kiln::ptx::test {

/// "ld.global.b32 %a, ..." before `text`, whose registers are %a, %b, %c of the type of
/// the inputs and %d, of that of the result; %p, %q, %x and %y are further ones.
inline std::string kernel_of(const std::string& text, std::size_t in, std::size_t out) {
  const auto bits = [](std::size_t bytes) { return 8 * bytes; };
  const std::string load = fmt::format("ld.global.b{}", bits(in));
  // Registers of one byte there are none.
  const auto reg = [&](std::size_t bytes) {
    return std::max<std::size_t>(bits(bytes), 16);
  };
  return fmt::format(
      R"(.version 9.0
.target sm_100
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{{
  .reg .b{0} %a, %b, %c;
  .reg .b{1} %d;
  .reg .pred %p, %q;
  .reg .b32 %x, %y;
  .reg .b64 %i, %o, %l;
  ld.param.u64 %i, [in];
  ld.param.u64 %o, [out];
  mov.u32 %x, %tid.x;
  mul.wide.u32 %l, %x, {3};
  add.u64 %i, %i, %l;
  {2} %a, [%i];
  {2} %b, [%i+{4}];
  {2} %c, [%i+{5}];
  {6}
  mul.wide.u32 %l, %x, {7};
  mov.u32 %x, %tid.x;
  mul.wide.u32 %l, %x, {7};
  add.u64 %o, %o, %l;
  st.global.b{8} [%o], %d;
  ret;
}}
)",
      reg(in), reg(out), load, 3 * in, in, 2 * in, text, out, bits(out));
}

template <typename In>
using Inputs = std::vector<std::array<In, 3>>;  // a, b, c of each lane

/// Of each lane %d. Fails the test where it does not run, or where a device's %d is
/// further away.
template <typename Out, typename In>
std::vector<Out> run(const std::string& text, Inputs<In> inputs,
                     const Schedule& schedule = {}, const Nearness& near = {}) {
  const std::string kernel = kernel_of(text, sizeof(In), sizeof(Out));
  const auto program = decode(kernel);
  EXPECT_TRUE(program) << program.error();
  if (!program)
    return std::vector<Out>(inputs.size());
  const std::vector<Out> zeros(inputs.size());
  Arena arena;
  const std::uint64_t in = arena.add(std::span<const std::array<In, 3>>(inputs), true);
  const std::uint64_t out = arena.reserve(inputs.size() * sizeof(Out));
  Parameters parameters;
  parameters.add(in).add(out);
  Report report;
  const auto done = launch(**program,
                           {.entry = "k",
                            .block = {static_cast<unsigned>(inputs.size()), 1, 1},
                            .parameters = parameters.bytes()},
                           {}, arena, schedule, {}, report);
  EXPECT_TRUE(done) << text << ": " << done.error().why;
  auto computed = arena.read<Out>(out, inputs.size());
  if (schedule.seed == 0)
    expect_as_on_device({.text = kernel,
                         .block = {static_cast<unsigned>(inputs.size()), 1, 1},
                         .in = std::as_bytes(std::span(inputs)),
                         .initial = std::as_bytes(std::span(zeros))},
                        text, std::as_bytes(std::span(computed)), sizeof(Out), near);
  return computed;
}

}  // namespace kiln::ptx::test
