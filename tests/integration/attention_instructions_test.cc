// What the exact path for large scores costs where no score is large. The kernel is
// compiled for real twice: as it is, and with a branch that is never taken. Counted are
// the instructions of its PTX, without those that are reached through the branch
// alone; `mov` and `neg` do not count, since the one only names a value that two paths
// make, and the other is part of the instruction that takes its result. And those of
// the cubin, all of them, of 16 bytes each.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compile/worker/nvrtc.h"
#include "compile/worker/nvrtc_compile.h"
#include "device/target.h"
#include "render/catalog.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/value_of.h"
#include "util/elf.h"

namespace kiln {
namespace {

/// As forward.cu.mustache has it.
constexpr std::string_view kQuestion =
    "kiln_any(fmaxf(fabsf(origin[0]), fabsf(origin[1])) > kLarge)";

struct Instruction {
  std::string opcode;             // "vote.sync.any.pred"
  std::vector<std::size_t> next;  // where it goes on
};
using Program = std::vector<Instruction>;

/// The statements of PTX without directives and comments: "$L__BB0_3:" and, without its
/// semicolon, "@%p1 bra $L__BB0_3".
std::vector<std::string> statements(const std::string& ptx) {
  std::vector<std::string> found;
  std::string statement;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.size(), line.find("//")));
    for (const char c : line) {
      const bool begins = statement.empty();
      if (begins &&
          (std::isspace(static_cast<unsigned char>(c)) != 0 || c == '{' || c == '}'))
        continue;
      if (c != ';')
        statement += c;
      if (c != ';' && (c != ':' || !statement.starts_with('$')))
        continue;
      if (!statement.empty() && !statement.starts_with('.'))
        found.push_back(statement);
      statement.clear();
    }
    if (!statement.empty())
      statement += ' ';
  }
  return found;
}

/// Of the only entry point in `ptx`.
Program program_of(const std::string& ptx) {
  Program program;
  std::map<std::string, std::size_t> labels;
  std::vector<std::pair<std::size_t, std::string>> jumps;
  for (const std::string& statement : statements(ptx)) {
    if (statement.ends_with(':')) {
      labels[statement.substr(0, statement.size() - 1)] = program.size();
      continue;
    }
    std::istringstream words(statement);
    std::string opcode;
    words >> opcode;
    const bool is_conditional = opcode.starts_with('@');
    if (is_conditional)
      words >> opcode;
    Instruction instruction{.opcode = opcode, .next = {}};
    const bool jumps_away = opcode == "bra" || opcode == "bra.uni";
    if (is_conditional || !(jumps_away || opcode == "ret" || opcode == "exit"))
      instruction.next.push_back(program.size() + 1);
    if (jumps_away) {
      std::string label;
      words >> label;
      jumps.emplace_back(program.size(), label);
    }
    program.push_back(std::move(instruction));
  }
  for (const auto& [from, label] : jumps)
    program[from].next.push_back(labels.at(label));
  return program;
}

/// What is reached from the first instruction on, but not from `from` to `to`.
std::vector<bool> reached(const Program& program, std::size_t from, std::size_t to) {
  std::vector<bool> seen(program.size(), false);
  std::vector<std::size_t> todo{0};
  while (!todo.empty()) {
    const std::size_t at = todo.back();
    todo.pop_back();
    if (at >= program.size() || seen[at])
      continue;
    seen[at] = true;
    for (const std::size_t next : program[at].next) {
      if (at != from || next != to)
        todo.push_back(next);
    }
  }
  return seen;
}

struct Counts {
  std::size_t questions = 0;
  std::size_t usual = 0;
  std::size_t exact = 0;    // behind the branches
  std::size_t machine = 0;  // of the cubin
};

/// A question is a vote, and the next conditional branch belongs to it.
Counts count(const Program& program) {
  Counts counts;
  std::vector<bool> is_exact(program.size(), false);
  for (std::size_t vote = 0; vote < program.size(); ++vote) {
    if (!program[vote].opcode.starts_with("vote"))
      continue;
    ++counts.questions;
    std::size_t branch = vote;
    while (branch < program.size() && program[branch].next.size() < 2) ++branch;
    if (branch == program.size())
      continue;
    // Without the way around the exact path everything is still reached.
    for (const std::size_t next : program[branch].next) {
      const std::vector<bool> others = reached(program, branch, next);
      for (std::size_t at = 0; at < program.size(); ++at)
        is_exact[at] = is_exact[at] || !others[at];
    }
  }
  for (std::size_t at = 0; at < program.size(); ++at) {
    const std::string& opcode = program[at].opcode;
    if (!opcode.starts_with("mov") && !opcode.starts_with("neg"))
      ++(is_exact[at] ? counts.exact : counts.usual);
  }
  return counts;
}

TEST(AttentionInstructions, OfTheExactPathCostUsualScoresAQuestionAStepAndNoneAScore) {
  const auto nvrtc = compile::open_nvrtc(test::real_nvrtc());
  if (!nvrtc)
    GTEST_SKIP() << "no NVRTC on this machine";
  const auto catalog =
      test::value_of(render::TemplateCatalog::open(templates::embedded()));
  const auto kernel = test::value_of(catalog.find("attention_fwd"));
  const device::Target target{.architecture = {.capability = {9, 0}}};
  const auto counts_of = [&](const std::string& text) {
    const compile::CompileJob job{
        .source = text,
        .options = {"--std=c++17", "--gpu-architecture=" + to_string(target)},
        .target = target};
    const auto output = compile::compile_here(
        **nvrtc, job, std::chrono::steady_clock::now() + std::chrono::minutes(5),
        nullptr);
    if (!output) {
      ADD_FAILURE() << output.error().message;
      return Counts{};
    }
    Counts counts = count(program_of(output->ptx));
    const auto cubin = ElfFile::parse(output->image);
    const ElfSection* const code =
        cubin ? cubin->find_section(".text.attention_fwd") : nullptr;
    EXPECT_NE(code, nullptr);
    counts.machine = code == nullptr ? 0 : code->size / 16;
    return counts;
  };

  struct Variant {
    const char* bias;
    const char* tile;
    const char* step;
    std::size_t row_tiles;  // of 16 rows a warp
  };
  for (const Variant& variant : {Variant{"none", "64", "64", 1},
                                 {"none", "128", "64", 2},
                                 {"additive", "64", "64", 1},
                                 {"alibi", "64", "64", 1}}) {
    SCOPED_TRACE(fmt::format("{} {}", variant.bias, variant.tile));
    const auto params = kernel->canonical({{"dtype", "bf16"},
                                           {"dqk", "64"},
                                           {"dv", "64"},
                                           {"bias", variant.bias},
                                           {"tile", variant.tile},
                                           {"step", variant.step}});
    ASSERT_TRUE(params) << params.error().message;
    const auto source = test::value_of(kernel->render(*params));
    const Counts with = counts_of(source.text);
    std::string text = source.text;
    const std::size_t question = text.find(kQuestion);
    ASSERT_NE(question, std::string::npos);
    text.replace(question, kQuestion.size(), "false");
    ASSERT_EQ(text.find(kQuestion), std::string::npos);
    const Counts without = counts_of(text);

    EXPECT_EQ(without.questions, 0U);
    EXPECT_EQ(without.exact, 0U);
    EXPECT_EQ(with.questions, variant.row_tiles);
    // A thread has 32 scores of 16 rows and 64 keys, and subtracts from each.
    EXPECT_GE(with.exact, 32 * variant.row_tiles);
    // Of two rows: their largest score, the comparison, the vote, the branch.
    EXPECT_LE(with.usual, without.usual + 7 * variant.row_tiles);
    // One more a score would be 32.
    EXPECT_LE(with.machine, without.machine + (32 + 16) * variant.row_tiles);
    fmt::print(
        "{} {}: {} instructions, {} more for the question, {} in the branch; of the "
        "machine {} and {}\n",
        variant.bias, variant.tile, without.usual,
        static_cast<std::int64_t>(with.usual - without.usual), with.exact,
        without.machine, with.machine);
  }
}

}  // namespace
}  // namespace kiln
