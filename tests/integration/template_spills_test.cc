// Every kernel of every default set, and those that keep the most in registers,
// compiled for real: no registers spilled, no local memory, on five architectures; on
// all that NVRTC knows with KILN_TEST_ALL_ARCHS=1, every combination of parameters with
// KILN_TEST_ALL_VARIANTS=1, and of all that only what KILN_TEST_MATCHING, a regular
// expression, finds in "NAME:p=v,q=w". Prints what the kernels take, as
// templates/README.md has it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "attention/kernel_choice.h"
#include "compile/worker/nvrtc.h"
#include "compile/worker/nvrtc_compile.h"
#include "device/target.h"
#include "render/catalog.h"
#include "request/selection.h"
#include "tests/support/attention_problem.h"
#include "tests/support/compile_jobs.h"
#include "tests/support/in_threads.h"
#include "tests/support/value_of.h"

namespace kiln {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

const compile::Nvrtc* find_nvrtc() {
  const auto nvrtc = compile::open_nvrtc(test::real_nvrtc());
  return nvrtc ? *nvrtc : nullptr;
}

std::vector<device::ComputeCapability> architectures(const compile::Nvrtc& nvrtc) {
  if (std::getenv("KILN_TEST_ALL_ARCHS") != nullptr) {  // NOLINT(concurrency-mt-unsafe)
    const auto description = compile::describe(nvrtc);
    return description ? description->architectures
                       : std::vector<device::ComputeCapability>{};
  }
  return {{7, 5}, {8, 0}, {9, 0}, {10, 0}, {12, 0}};
}

struct Compiled {
  std::vector<compile::ResourceUse> uses;  // an entry point each
  std::string complaint;                   // what is wrong with it, or ""
};

Compiled compile_variant(const compile::Nvrtc& nvrtc,
                         const request::TemplateRequest& request,
                         device::ComputeCapability capability) {
  const device::Target target{.architecture = {.capability = capability}};
  const auto source = request.kernel->render(request.params);
  if (!source)
    return {.uses = {}, .complaint = source.error().message};
  const compile::CompileJob job{
      .source = source->text,
      .options = {"--std=c++17", "--gpu-architecture=" + to_string(target)},
      .target = target};
  const auto output = compile::compile_here(
      nvrtc, job, steady_clock::now() + std::chrono::minutes(5), nullptr);
  if (!output)
    return {.uses = {}, .complaint = output.error().message};
  Compiled compiled{.uses = output->resources, .complaint = ""};
  if (output->resources.size() != request.kernel->entry_points().size())
    compiled.complaint = "the log tells nothing of its resources:\n" + output->log;
  for (const auto& use : output->resources) {
    if (use.spill_store_bytes + use.spill_load_bytes + use.stack_bytes != 0)
      compiled.complaint = fmt::format(
          "{} registers, {} bytes of stack, {} spilled, {} read back", use.registers,
          use.stack_bytes, use.spill_store_bytes, use.spill_load_bytes);
  }
  return compiled;
}

/// What the variants of a kernel take on one architecture.
struct Range {
  std::size_t variants = 0;
  std::uint64_t fewest_registers = ~0ULL;
  std::uint64_t most_registers = 0;
  std::uint64_t most_shared_bytes = 0;  // static

  void add(const Compiled& compiled) {
    ++variants;
    for (const auto& use : compiled.uses) {
      fewest_registers = std::min(fewest_registers, use.registers);
      most_registers = std::max(most_registers, use.registers);
      most_shared_bytes = std::max(most_shared_bytes, use.static_shared_bytes);
    }
  }
};
std::string to_string(const Range& range) {
  const std::string registers =
      range.fewest_registers == range.most_registers
          ? std::to_string(range.most_registers)
          : fmt::format("{}–{}", range.fewest_registers, range.most_registers);
  return range.most_shared_bytes == 0
             ? registers
             : fmt::format("{}, {} B", registers, range.most_shared_bytes);
}
using Ranges = std::map<std::string, Range>;  // by kernel

class Grid {
 public:
  Grid(const compile::Nvrtc& nvrtc, device::ComputeCapability capability,
       const std::vector<request::TemplateRequest>& requests)
      : nvrtc_(nvrtc), capability_(capability), requests_(requests) {}

  /// The complaints.
  std::vector<std::string> run() {
    test::in_threads(std::max(1U, std::thread::hardware_concurrency()),
                     [this] { work(); });
    return complaints_;
  }
  [[nodiscard]] const Ranges& ranges() const { return ranges_; }

 private:
  void work() {
    for (std::size_t at = next_++; at < requests_.size(); at = next_++) {
      const auto& request = requests_[at];
      const Compiled compiled = compile_variant(nvrtc_, request, capability_);
      const std::scoped_lock lock(mutex_);
      ranges_[request.kernel->name()].add(compiled);
      if (!compiled.complaint.empty())
        complaints_.push_back(
            request::format_template(request.kernel->name(), request.params.values()) +
            ": " + compiled.complaint);
    }
  }

  const compile::Nvrtc& nvrtc_;
  const device::ComputeCapability capability_;
  const std::vector<request::TemplateRequest>& requests_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  std::vector<std::string> complaints_;
  Ranges ranges_;
};

/// A row a kernel, a column an architecture: registers a thread, and static shared
/// memory where there is some.
void print_table(const std::map<device::ComputeCapability, Ranges>& by_architecture) {
  std::map<std::string, std::size_t> kernels;
  std::string head = "| kernel | variants |";
  for (const auto& [capability, ranges] : by_architecture) {
    head += fmt::format(" {} |", to_string(capability));
    for (const auto& [kernel, range] : ranges)
      kernels[kernel] = std::max(kernels[kernel], range.variants);
  }
  fmt::print("{}\n", head);
  for (const auto& [kernel, variants] : kernels) {
    std::string row = fmt::format("| `{}` | {} |", kernel, variants);
    for (const auto& [capability, ranges] : by_architecture) {
      const auto range = ranges.find(kernel);
      row +=
          fmt::format(" {} |", range == ranges.end() ? "" : to_string(range->second));
    }
    fmt::print("{}\n", row);
  }
}

/// A failure for each of `requests` that spills, from `first` on.
void expect_no_spills(const compile::Nvrtc& nvrtc,
                      const std::vector<request::TemplateRequest>& requests,
                      device::ComputeCapability first = {}) {
  const char* const matching =
      std::getenv("KILN_TEST_MATCHING");  // NOLINT(concurrency-mt-unsafe)
  const std::regex pattern(matching == nullptr ? "" : matching);
  std::size_t compiled = 0;
  std::map<device::ComputeCapability, Ranges> ranges;
  const auto start = steady_clock::now();
  for (const auto capability : architectures(nvrtc)) {
    if (capability < first)
      continue;
    auto wanted = requests;
    std::erase_if(wanted, [&](const request::TemplateRequest& request) {
      const std::string name =
          request::format_template(request.kernel->name(), request.params.values());
      return request.kernel->excluded(request.params, capability).has_value() ||
             !std::regex_search(name, pattern);
    });
    const auto begin = steady_clock::now();
    Grid grid(nvrtc, capability, wanted);
    for (const auto& problem : grid.run()) {
      ADD_FAILURE() << to_string(capability) << " " << problem;
    }
    ranges[capability] = grid.ranges();
    compiled += wanted.size();
    fmt::print("{}: {} kernels in {:.1f} s\n", to_string(capability), wanted.size(),
               duration<double>(steady_clock::now() - begin).count());
  }
  fmt::print("{} kernels in {:.1f} s\n", compiled,
             duration<double>(steady_clock::now() - start).count());
  EXPECT_TRUE(compiled > 0 || matching != nullptr);
  print_table(ranges);
}

/// Every combination of the parameters' values that no constraint forbids.
std::vector<request::TemplateRequest> all_variants(
    const render::TemplateCatalog::Kernel& kernel) {
  std::vector<Parameters> combinations{{}};
  for (const render::Parameter& parameter : kernel->parameters()) {
    std::vector<Parameters> longer;
    for (const std::string& value : parameter.values) {
      for (const Parameters& shorter : combinations)
        longer.emplace_back(shorter).emplace(parameter.name, value);
    }
    if (!longer.empty())  // else it is an integer, and stays at its default
      combinations = std::move(longer);
  }
  std::vector<request::TemplateRequest> requests;
  for (const Parameters& parameters : combinations) {
    if (auto canonical = kernel->canonical(parameters))
      requests.push_back({kernel, *std::move(canonical)});
  }
  return requests;
}

class TemplateSpills : public testing::Test {
 protected:
  void SetUp() override {
    if (nvrtc_ == nullptr)
      GTEST_SKIP() << "no NVRTC on this machine";
  }
  static bool wants_all_variants() {
    // NOLINTNEXTLINE(concurrency-mt-unsafe)
    return std::getenv("KILN_TEST_ALL_VARIANTS") != nullptr;
  }

  const compile::Nvrtc* const nvrtc_ = find_nvrtc();
  const render::TemplateCatalog catalog_ =
      test::value_of(render::TemplateCatalog::open(templates::embedded()));
};

TEST_F(TemplateSpills, NoKernelOfADefaultSetSpillsOrUsesLocalMemory) {
  request::Selection all(catalog_);
  ASSERT_TRUE(all.add_all());
  expect_no_spills(*nvrtc_, all.requests());
}

// Takes minutes an architecture.
TEST_F(TemplateSpills, NeitherDoesAnyOtherVariant) {
  if (!wants_all_variants())
    GTEST_SKIP() << "set KILN_TEST_ALL_VARIANTS=1 for every combination of parameters";
  const auto kernels = test::value_of(catalog_.kernels());
  std::vector<request::TemplateRequest> requests;
  for (const auto& kernel : kernels) {
    // Of their tiles those count that are chosen: see below.
    if (kernel->name() == "attention_fwd" || kernel->name() == "attention_bwd")
      continue;
    for (auto& request : all_variants(kernel)) requests.push_back(std::move(request));
  }
  expect_no_spills(*nvrtc_, requests);
}

/// Problems of 16 bits on tensor cores, as far as the choice of a kernel depends on
/// them, with the head dimensions that models have; templates/README.md says what
/// others spill.
std::vector<attention::Problem> attention_problems() {
  std::vector<attention::Problem> problems;
  for (const auto& [dqk, dv] : std::initializer_list<std::pair<int, int>>{
           {32, 32}, {64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}}) {
    for (const auto bias : {attention::Bias::kNone, attention::Bias::kPostScale,
                            attention::Bias::kAlibi}) {
      for (const double dropout : {0.0, 0.1}) {
        const bool has_more = bias != attention::Bias::kNone || dropout > 0;
        if (has_more && dqk > 128)
          continue;
        for (const auto pass : {attention::Pass::kForward, attention::Pass::kBackward})
          problems
              .emplace_back(test::problem_of(
                  ops::DType::kBf16, {1, 1, 1024, dqk}, {1, 1, 1024, dqk},
                  {.dv = dv, .bias_kind = bias, .dropout = dropout}))
              .pass = pass;
      }
    }
  }
  return problems;
}

// Takes minutes an architecture.
TEST_F(TemplateSpills, NorDoTilesThatAttentionChooses) {
  if (!wants_all_variants())
    GTEST_SKIP() << "set KILN_TEST_ALL_VARIANTS=1 for attention's";
  std::vector<request::TemplateRequest> requests;
  for (const attention::Problem& problem : attention_problems()) {
    const auto choice = test::value_of(attention::choose_kernel(problem, {8, 0}));
    const auto kernel = test::value_of(catalog_.find(choice.kernel));
    auto params = test::value_of(kernel->canonical(choice.parameters));
    requests.push_back({kernel, std::move(params)});
  }
  expect_no_spills(*nvrtc_, requests, {8, 0});
}

// Guards against a warp that keeps a row which does not fit its registers: existing
// kernels do so up to 16384 columns, and move kilobytes a thread to memory and back.
TEST_F(TemplateSpills, NeitherDoTheLongestFloatRowsThatAWarpKeeps) {
  request::Selection longest(catalog_);
  const auto kernels = test::value_of(catalog_.family("softmax"));
  for (const auto& kernel : kernels) {
    const auto added =
        longest.add_template(kernel->name() + ":dtype=f32,max_cols=4096");
    ASSERT_TRUE(added) << added.error().message;
  }
  expect_no_spills(*nvrtc_, longest.requests());
}

// The same of norms that hold a row, its weights and the sums of its columns, and of
// those that have the fewest registers for a float weight; from the output both have
// the bias, too.
TEST_F(TemplateSpills, NeitherDoTheNormsThatHoldTheMost) {
  request::Selection fullest(catalog_);
  for (const char* const variant :
       {"layernorm_bwd:dtype=bf16,weight_dtype=f32,max_cols=8192,residual=true",
        "layernorm_bwd:dtype=f32,max_cols=8192,residual=true",
        "layernorm_bwd:dtype=f16,weight_dtype=f32,max_cols=any,residual=true",
        "layernorm_bwd:dtype=bf16,weight_dtype=f32,max_cols=8192,residual=true,"
        "from_output=true",
        "layernorm_bwd:dtype=f16,weight_dtype=f32,max_cols=any,residual=true,"
        "from_output=true",
        "layernorm_fwd:dtype=bf16,weight_dtype=f32,max_cols=8192,residual=true",
        "layernorm_fwd:dtype=bf16,weight_dtype=f32,max_cols=any",
        "rmsnorm_bwd:dtype=bf16,weight_dtype=f32,max_cols=any,residual=true"}) {
    const auto added = fullest.add_template(variant);
    ASSERT_TRUE(added) << added.error().message;
  }
  expect_no_spills(*nvrtc_, fullest.requests());
}

}  // namespace
}  // namespace kiln
