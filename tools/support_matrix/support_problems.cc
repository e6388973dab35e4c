#include <fmt/format.h>

#include <array>
#include <functional>
#include <tuple>
#include <utility>

#include "tools/support_matrix/support_matrix.h"

namespace kiln::attention {
namespace {

using Edit = std::function<void(Problem&)>;

/// bf16, batch 2, 16 heads, 1024 by 1024, head dimension 128, and what `edit` changes.
Problem problem_of(Pass pass, const Edit& edit) {
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
  edit(problem);
  set_strides(problem);
  return problem;
}

struct NamedMask {
  const char* name;
  Edit edit;
};

Edit mask(Mask value) {
  return [=](Problem& problem) { problem.mask = value; };
}
Edit window(Mask value, std::int64_t left, std::int64_t right) {
  return [=](Problem& problem) {
    problem.mask = value;
    problem.window_left = left;
    problem.window_right = right;
  };
}

SupportTable dimensions_table(Pass pass) {
  constexpr std::array<std::array<std::int64_t, 2>, 5> kDims{
      {{64, 64}, {128, 128}, {192, 128}, {192, 192}, {256, 256}}};
  const std::array<NamedMask, 5> masks{
      {{"none", mask(Mask::kNone)},
       {"causal", mask(Mask::kCausal)},
       {"bottom right", mask(Mask::kCausalBottomRight)},
       {"padding", mask(Mask::kPadding)},
       {"causal, window 128", window(Mask::kCausal, 128, 0)}}};
  SupportTable table{
      .title = fmt::format("{} pass: head dimensions and masks",
                           pass == Pass::kForward ? "Forward" : "Backward"),
      .rows = {}};
  for (const auto& [qk, v] : kDims) {
    for (const NamedMask& each : masks) {
      const std::string dims =
          qk == v ? fmt::to_string(qk) : fmt::format("{}/{}", qk, v);
      table.rows.push_back({fmt::format("{}, {}", dims, each.name),
                            problem_of(pass, [&, d = std::pair(qk, v)](Problem& p) {
                              std::tie(p.dqk, p.dv) = d;
                              each.edit(p);
                            })});
    }
  }
  return table;
}

std::vector<std::pair<std::string, Edit>> features_of_both() {
  using P = Problem&;
  const auto thd = [](Mask value) {
    return [=](P p) {
      p.layout = Layout::kThd;
      p.mask = value;
    };
  };
  return {
      {"grouped heads (16 and 4)", [](P p) { p.kv_heads = 4; }},
      {"lengths that are no multiples of 64", [](P p) { p.sq = p.skv = 1000; }},
      {"padding and causal", mask(Mask::kPaddingCausal)},
      {"padding and bottom right", mask(Mask::kPaddingCausalBottomRight)},
      {"bottom right, 512 by 2048",
       [](P p) {
         p.mask = Mask::kCausalBottomRight;
         p.sq = 512;
         p.skv = 2048;
       }},
      {"bottom right, lengths of 1000",
       [](P p) {
         p.mask = Mask::kCausalBottomRight;
         p.sq = p.skv = 1000;
       }},
      {"window 128 to both sides, 2048 long",
       [](P p) {
         p.sq = p.skv = 2048;
         p.window_left = p.window_right = 128;
       }},
      {"bottom right, window 128, 512 by 2048",
       [](P p) {
         window(Mask::kCausalBottomRight, 128, 0)(p);
         p.sq = 512;
         p.skv = 2048;
       }},
      {"bias", [](P p) { p.bias_kind = Bias::kPostScale; }},
      {"ALiBi, causal",
       [](P p) {
         p.mask = Mask::kCausal;
         p.bias_kind = Bias::kAlibi;
       }},
      {"dropout", [](P p) { p.dropout = 0.125; }},
      {"bias and dropout",
       [](P p) {
         p.bias_kind = Bias::kPostScale;
         p.dropout = 0.125;
       }},
      {"thd, padding", thd(Mask::kPadding)},
      {"thd, padding and bottom right", thd(Mask::kPaddingCausalBottomRight)},
      {"thd, padding and causal, grouped heads",
       [=](P p) {
         thd(Mask::kPaddingCausal)(p);
         p.kv_heads = 4;
       }},
  };
}

SupportTable features_table(Pass pass) {
  using P = Problem&;
  const bool is_forward = pass == Pass::kForward;
  SupportTable table{.title = fmt::format("{} pass: features, with head dimension 128",
                                          is_forward ? "Forward" : "Backward"),
                     .rows = {}};
  auto features = features_of_both();
  if (is_forward) {
    features.emplace_back("one query, bottom right", [](P p) {
      p.mask = Mask::kCausalBottomRight;
      p.sq = 1;
    });
    features.emplace_back("head dimensions 576/512", [](P p) {
      p.dqk = 576;
      p.dv = 512;
    });
  } else {
    features.emplace_back("bias and its gradient, lengths of 1000", [](P p) {
      p.bias_kind = Bias::kPostScale;
      p.bias_gradient = true;
      p.sq = p.skv = 1000;
    });
    features.emplace_back("deterministic", [](P p) { p.deterministic = true; });
    features.emplace_back("deterministic, dropout", [](P p) {
      p.deterministic = true;
      p.dropout = 0.125;
    });
    features.emplace_back("deterministic, thd, padding", [](P p) {
      p.deterministic = true;
      p.layout = Layout::kThd;
      p.mask = Mask::kPadding;
    });
    features.emplace_back("in a CUDA graph, lengths of 1000", [](P p) {
      p.capture = true;
      p.sq = p.skv = 1000;
    });
    features.emplace_back("head dimensions 192/160", [](P p) {
      p.dqk = 192;
      p.dv = 160;
    });
    features.emplace_back("head dimension 256, thd, padding", [](P p) {
      p.dqk = p.dv = 256;
      p.layout = Layout::kThd;
      p.mask = Mask::kPadding;
    });
  }
  for (auto& [name, edit] : features)
    table.rows.push_back({name, problem_of(pass, edit)});
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
