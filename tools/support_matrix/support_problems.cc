#include <fmt/format.h>

#include <array>
#include <functional>
#include <tuple>
#include <utility>

#include "tools/support_matrix/support_matrix.h"

namespace kiln::attention {
namespace {

using Edit = std::function<void(Problem&)>;
using Edits = std::vector<Edit>;

/// bf16, batch 2, 16 heads, 1024 by 1024, head dimension 128, and what `edits` change.
Problem problem_of(Pass pass, const Edits& edits) {
  Problem problem{{.dtype = DType::kBf16,
                   .batch = 2,
                   .heads = 16,
                   .kv_heads = 16,
                   .sq = 1024,
                   .skv = 1024,
                   .dqk = 128,
                   .dv = 128},
                  {.pass = pass,
                   .training = pass == Pass::kBackward,
                   .stats = pass == Pass::kBackward}};
  for (const Edit& edit : edits) edit(problem);
  set_strides(problem);
  return problem;
}

struct Named {
  std::string name;
  Edits edits;
};

Edit mask(Mask value) {
  return [=](Problem& problem) { problem.mask = value; };
}
Edit lengths(std::int64_t queries, std::int64_t keys) {
  return [=](Problem& problem) {
    std::tie(problem.sq, problem.skv) = std::pair(queries, keys);
  };
}
Edit dims(std::int64_t qk, std::int64_t v) {
  return
      [=](Problem& problem) { std::tie(problem.dqk, problem.dv) = std::pair(qk, v); };
}
Edit window(std::int64_t left, std::int64_t right) {
  return [=](Problem& problem) {
    problem.window_left = left;
    problem.window_right = right;
  };
}
Edit bias(Bias kind) {
  return [=](Problem& problem) { problem.bias_kind = kind; };
}
void dropout(Problem& problem) {
  problem.dropout = 0.125;
}
void thd(Problem& problem) {
  problem.layout = Layout::kThd;
}
void grouped(Problem& problem) {
  problem.kv_heads = 4;
}
void deterministic(Problem& problem) {
  problem.deterministic = true;
}

SupportTable dimensions_table(Pass pass) {
  constexpr std::array<std::array<std::int64_t, 2>, 5> kDims{
      {{64, 64}, {128, 128}, {192, 128}, {192, 192}, {256, 256}}};
  const std::array<Named, 5> masks{
      {{"none", {mask(Mask::kNone)}},
       {"causal", {mask(Mask::kCausal)}},
       {"bottom right", {mask(Mask::kCausalBottomRight)}},
       {"padding", {mask(Mask::kPadding)}},
       {"causal, window 128", {mask(Mask::kCausal), window(128, 0)}}}};
  SupportTable table{
      .title = fmt::format("{} pass: head dimensions and masks",
                           pass == Pass::kForward ? "Forward" : "Backward"),
      .rows = {}};
  for (const auto& [qk, v] : kDims) {
    for (const auto& [name, edits] : masks) {
      Edits all = edits;
      all.push_back(dims(qk, v));
      table.rows.push_back(
          {fmt::format("{}, {}",
                       qk == v ? fmt::to_string(qk) : fmt::format("{}/{}", qk, v),
                       name),
           problem_of(pass, all)});
    }
  }
  return table;
}

std::vector<Named> features_of_both() {
  return {
      {"grouped heads (16 and 4)", {grouped}},
      {"lengths that are no multiples of 64", {lengths(1000, 1000)}},
      {"padding and causal", {mask(Mask::kPaddingCausal)}},
      {"padding and bottom right", {mask(Mask::kPaddingCausalBottomRight)}},
      {"bottom right, 512 by 2048",
       {mask(Mask::kCausalBottomRight), lengths(512, 2048)}},
      {"bottom right, lengths of 1000",
       {mask(Mask::kCausalBottomRight), lengths(1000, 1000)}},
      {"window 128 to both sides, 2048 long", {lengths(2048, 2048), window(128, 128)}},
      {"bottom right, window 128, 512 by 2048",
       {mask(Mask::kCausalBottomRight), window(128, 0), lengths(512, 2048)}},
      {"bias", {bias(Bias::kPostScale)}},
      {"ALiBi, causal", {mask(Mask::kCausal), bias(Bias::kAlibi)}},
      {"dropout", {dropout}},
      {"bias and dropout", {bias(Bias::kPostScale), dropout}},
      {"thd, padding", {thd, mask(Mask::kPadding)}},
      {"thd, padding and bottom right", {thd, mask(Mask::kPaddingCausalBottomRight)}},
      {"thd, padding and causal, grouped heads",
       {thd, mask(Mask::kPaddingCausal), grouped}},
  };
}

std::vector<Named> features_of(Pass pass) {
  if (pass == Pass::kForward)
    return {
        {"one query, bottom right", {mask(Mask::kCausalBottomRight), lengths(1, 1024)}},
        {"head dimensions 576/512", {dims(576, 512)}}};
  return {{"bias and its gradient, lengths of 1000",
           {bias(Bias::kPostScale), lengths(1000, 1000),
            [](Problem& problem) { problem.bias_gradient = true; }}},
          {"deterministic", {deterministic}},
          {"deterministic, dropout", {deterministic, dropout}},
          {"deterministic, thd, padding", {deterministic, thd, mask(Mask::kPadding)}},
          {"in a CUDA graph, lengths of 1000",
           {lengths(1000, 1000), [](Problem& problem) { problem.capture = true; }}},
          {"head dimensions 192/160", {dims(192, 160)}},
          {"head dimension 256, thd, padding",
           {dims(256, 256), thd, mask(Mask::kPadding)}}};
}

SupportTable features_table(Pass pass) {
  SupportTable table{
      .title = fmt::format("{} pass: features, with head dimension 128",
                           pass == Pass::kForward ? "Forward" : "Backward"),
      .rows = {}};
  for (const auto& features : {features_of_both(), features_of(pass)}) {
    for (const auto& [name, edits] : features)
      table.rows.push_back({name, problem_of(pass, edits)});
  }
  return table;
}

}  // namespace

std::vector<SupportTable> support_tables() {
  std::vector<SupportTable> tables;
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    tables.push_back(dimensions_table(pass));
    tables.push_back(features_table(pass));
  }
  return tables;
}

}  // namespace kiln::attention
