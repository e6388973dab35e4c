// Attention: Kiln's own kernels, which are compute-bound, each next to cuDNN's plan for
// the same problem, called as a program calls it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kiln/ops/attention.h"
#include "library/service_parts.h"
#include "ops/attention.h"
#include "ops/on_device.h"
#include "ops/run.h"
#include "tools/bench/cases.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using attention::Bias;
using attention::Mask;
using attention::Pass;
using attention::Problem;

/// Goals of the forward pass with head dimension 128, by compute capability: 80 % of
/// the published speed of FlashAttention-2 on an A100 and on an H100, where it uses the
/// same mma.sync instructions.
struct Goal {
  ComputeCapability capability;
  double forward_tflops;
};
constexpr std::array kGoals{Goal{{8, 0}, 150}, Goal{{9, 0}, 240}};
constexpr double kBackwardPart = 0.60;  // of the forward goal
constexpr std::int64_t kDimOfGoals = 128;

double goal_tflops(const Problem& problem, const Device& device) {
  const auto found = std::ranges::find(kGoals, device.capability, &Goal::capability);
  const bool has_goal = found != kGoals.end() && problem.dtype != ops::DType::kF32 &&
                        problem.dqk == kDimOfGoals && problem.dv == kDimOfGoals;
  if (!has_goal)
    return 0;
  return problem.pass == Pass::kForward ? found->forward_tflops
                                        : kBackwardPart * found->forward_tflops;
}

/// Counted as FlashAttention's authors do. Forward: two products, with 2 operations per
/// query, key and dimension; a causal mask halves the pairs. Backward: 5 products.
double flops(const Problem& problem) {
  constexpr double kBackwardTimes = 2.5;
  const double pairs = static_cast<double>(problem.batch * problem.heads) *
                       static_cast<double>(problem.sq * problem.skv) /
                       (problem.mask == Mask::kCausal ? 2 : 1);
  const double forward = 2 * pairs * static_cast<double>(problem.dqk + problem.dv);
  return problem.pass == Pass::kForward ? forward : kBackwardTimes * forward;
}

std::string what(const Problem& problem) {
  const std::string heads = problem.kv_heads == problem.heads
                                ? std::to_string(problem.heads)
                                : fmt::format("{}/{}", problem.heads, problem.kv_heads);
  const std::string dim = problem.dqk == problem.dv
                              ? std::to_string(problem.dqk)
                              : fmt::format("{}/{}", problem.dqk, problem.dv);
  return fmt::format("{}{}, {} x {} x {} x {}",
                     problem.mask == Mask::kCausal ? "causal" : "full",
                     problem.bias_kind == Bias::kPostScale ? ", bias" : "",
                     problem.batch, problem.sq, heads, dim);
}

/// In the order of tensors_at().
std::vector<BenchTensor> tensors_of(const Problem& problem) {
  const std::int64_t rows = problem.batch * problem.heads * problem.sq;
  const std::int64_t kv_rows = problem.batch * problem.kv_heads * problem.skv;
  const std::uint64_t q = bytes_of(problem.dtype, rows * problem.dqk);
  const std::uint64_t k = bytes_of(problem.dtype, kv_rows * problem.dqk);
  const std::uint64_t v = bytes_of(problem.dtype, kv_rows * problem.dv);
  const std::uint64_t o = bytes_of(problem.dtype, rows * problem.dv);
  const std::uint64_t bias =
      problem.bias_kind == Bias::kPostScale
          ? bytes_of(problem.dtype, problem.heads * problem.sq * problem.skv)
          : 0;
  std::vector<BenchTensor> tensors{
      {.bytes = q},
      {.bytes = k},
      {.bytes = v},
      {.bytes = o},
      {.bytes = static_cast<std::uint64_t>(rows) * sizeof(float)},
      {.bytes = bias}};
  if (problem.pass == Pass::kBackward) {
    for (const std::uint64_t bytes : {o, q, k, v, bias})
      tensors.push_back({.bytes = bytes});
  }
  return tensors;
}

/// The workspace has the last address.
ops::AttentionTensors tensors_at(BenchAddresses at, const Problem& problem,
                                 std::uint64_t workspace_bytes) {
  ops::AttentionTensors given{.q = at[0],
                              .k = at[1],
                              .v = at[2],
                              .o = at[3],
                              .stats = static_cast<float*>(at[4]),
                              .bias = at[5]};
  if (problem.pass == Pass::kBackward) {
    given.grad_o = at[6];
    given.grad_q = at[7];
    given.grad_k = at[8];
    given.grad_v = at[9];
    given.grad_bias = at[10];
  }
  if (workspace_bytes != 0) {
    given.workspace = at.back();
    given.workspace_bytes = workspace_bytes;
  }
  return given;
}

/// The part of a case that all backends share.
BenchCase attention_case(const Problem& problem) {
  return {.operation = problem.pass == Pass::kBackward ? "attention_backward"
                                                       : "attention_forward",
          .what = what(problem),
          .dtype = problem.dtype,
          .work = Arithmetic{.flops = flops(problem)},
          .tensors = tensors_of(problem)};
}

BenchCase kiln_case(const Problem& problem, const Device& device) {
  BenchCase made = attention_case(problem);
  std::get<Arithmetic>(made.work).goal_tflops = goal_tflops(problem, device);
  const std::uint64_t workspace = ops::attention_workspace_bytes(problem);
  made.tensors.push_back({.bytes = workspace});
  made.start = [=](Service& service, const Device& on, CUstream_st* stream,
                   BenchAddresses at) -> Result<void> {
    const ops::AttentionCall call{problem, tensors_at(at, problem, workspace)};
    ops::Launches launches = KILN_TRY(plan(call, on, ops::Pointers::kChecked));
    return ops::on_device(service, {ops::operation_of(problem.pass), on, stream}, [&] {
      return ops::run(service, on, stream, std::move(launches));
    });
  };
  return made;
}

Result<std::optional<BenchRefusal>> prepare_cudnn(Service& service,
                                                  const Device& device,
                                                  const Problem& problem,
                                                  BenchCase& prepared) {
  const bool is_forward = problem.pass == Pass::kForward;
  const ops::AttentionOptions options{.stats = true,
                                      .bias_gradient = problem.bias_gradient};
  const auto prepare =
      is_forward ? ops::prepare_attention_forward : ops::prepare_attention_backward;
  const auto run = is_forward ? ops::attention_forward : ops::attention_backward;
  const auto choice = prepare(service, device, problem, options);
  if (!choice) {
    if (auto refusal = ServiceParts::attention_of(service).ask_cudnn(
            {.problem = problem, .device = device.ordinal}, device))
      return BenchRefusal{std::move(refusal->subject), std::move(refusal->reason)};
    return tl::unexpected(choice.error());
  }
  if (choice->backend != ops::AttentionBackend::kCudnn)
    return refuse("the service leaves attention to Kiln's kernel: " + choice->reason);
  const std::uint64_t workspace = choice->workspace_bytes;
  prepared.tensors.push_back({.bytes = workspace});
  prepared.start = [=](Service& with, const Device& on, CUstream_st* stream,
                       BenchAddresses at) {
    const ops::AttentionTensors given = tensors_at(at, problem, workspace);
    return run(with, on, stream, problem, given, options);
  };
  return std::nullopt;
}

/// prepare() adds the workspace: cuDNN tells its size only with the built plan.
BenchCase cudnn_case(const Problem& problem) {
  BenchCase made = attention_case(problem);
  made.backend = "cudnn";
  made.prepare = [=](Service& service, const Device& device, BenchCase& prepared) {
    return prepare_cudnn(service, device, problem, prepared);
  };
  return made;
}

void add_attention(std::vector<BenchCase>& cases, Problem problem,
                   const Device& device) {
  set_strides(problem);
  problem.training = true;
  problem.stats = true;
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    problem.pass = pass;
    problem.bias_gradient =
        pass == Pass::kBackward && problem.bias_kind == Bias::kPostScale;
    cases.push_back(kiln_case(problem, device));
    cases.push_back(cudnn_case(problem));
  }
}

/// Head dimensions, each with as many heads as give a hidden size of 2048.
struct Heads {
  std::int64_t count;
  std::int64_t dqk;
  std::int64_t dv;
};
constexpr std::array kHeads{Heads{32, 64, 64}, Heads{16, 128, 128}, Heads{16, 192, 128},
                            Heads{8, 256, 256}};

Problem problem_of(ops::DType dtype, const Heads& heads, std::int64_t length,
                   Mask mask) {
  constexpr std::int64_t kTokens = 16384;
  return {{.dtype = dtype,
           .batch = kTokens / length,
           .heads = heads.count,
           .kv_heads = heads.count,
           .sq = length,
           .skv = length,
           .dqk = heads.dqk,
           .dv = heads.dv,
           .mask = mask},
          {}};
}

/// The cases of kernels without tensor cores, on fewer tokens.
void add_plain_cases(std::vector<BenchCase>& cases, const Device& device) {
  Problem problem = problem_of(ops::DType::kF32, {.count = 8, .dqk = 64, .dv = 64},
                               2048, Mask::kCausal);
  problem.batch = 2;
  add_attention(cases, problem, device);
  problem.bias_kind = Bias::kPostScale;
  add_attention(cases, problem, device);
}

}  // namespace

void add_attention_cases(std::vector<BenchCase>& cases, ops::DType dtype,
                         const Device& device) {
  if (dtype == ops::DType::kF32) {
    add_plain_cases(cases, device);
    return;
  }
  for (const Heads& heads : kHeads) {
    for (const std::int64_t length : {2048, 8192}) {
      for (const Mask mask : {Mask::kNone, Mask::kCausal})
        add_attention(cases, problem_of(dtype, heads, length, mask), device);
    }
  }
  if (dtype != kRareFormDType)
    return;
  constexpr std::int64_t kHeadsOfAGroup = 4;
  Problem grouped = problem_of(dtype, kHeads[1], 8192, Mask::kCausal);
  grouped.kv_heads /= kHeadsOfAGroup;
  add_attention(cases, grouped, device);
}

std::vector<BenchCase> bench_cases(const Device& device) {
  std::vector<BenchCase> cases;
  for (const ops::DType dtype :
       {ops::DType::kBf16, ops::DType::kF16, ops::DType::kF32}) {
    add_memory_cases(cases, dtype, device);
    add_attention_cases(cases, dtype, device);
  }
  return cases;
}

}  // namespace kiln::tools
