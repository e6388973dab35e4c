// The rules against cuDNN itself: hundreds of problems on seven architectures, each
// asked of the rules and built by the cuDNN that is here, which needs no GPU. Where
// they differ, differences.toml has the reason. Some of each by default; every family
// on every architecture with KILN_TEST_ALL_VARIANTS=1, which takes minutes.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <set>

#include "attention/evaluate.h"
#include "attention/problem_codec.h"
#include "tests/integration/attention/differences.h"
#include "tests/integration/attention/plan_builds.h"
#include "tests/integration/attention/probe_problems.h"
#include "tests/support/attention_words.h"
#include "tests/support/in_threads.h"
#include "tests/support/paths.h"
#include "tests/support/test.h"

namespace kiln {
namespace {

using attention::Problem;
using device::DeviceProperties;
using test::Difference;
using test::Probed;

struct Asked {
  std::string words;  // "9.0 bwd d=192/128 causal"
  DeviceProperties device;
  Probed probed{};
  std::string failure{};  // neither a plan nor a refusal
  std::uint64_t build_ms = 0;
};

bool wants_all() {
  return std::getenv("KILN_TEST_ALL_VARIANTS") !=
         nullptr;  // NOLINT(concurrency-mt-unsafe)
}

/// The examples of each difference, and each family once, or all of it.
std::vector<Asked> problems_to_ask(const std::vector<Difference>& differences) {
  const auto devices = test::probed_devices();
  std::set<std::string> wanted;
  for (const Difference& each : differences)
    wanted.insert(each.examples.begin(), each.examples.end());
  std::size_t turn = 0;
  for (const test::Family& family : test::probed_families()) {
    const std::size_t variants = devices.size() * family.passes.size();
    for (std::size_t i = 0; i < (wants_all() ? variants : 1); ++i) {
      const std::size_t variant = (turn + i) % variants;
      const auto arch = devices[variant % devices.size()].capability();
      wanted.insert(fmt::format("{} {} {}", to_string(arch),
                                family.passes[variant / devices.size()], family.words));
    }
    turn += 3;  // of 7 architectures: neighbours are on others
  }
  std::vector<Asked> asked;
  for (const std::string& words : wanted) {
    const auto arch = words.substr(0, words.find(' '));
    const auto device = std::ranges::find(
        devices, arch,
        [](const DeviceProperties& each) { return to_string(each.capability()); });
    if (device == devices.end())
      ADD_FAILURE() << words << ": no device of that architecture";
    else
      asked.push_back({.words = words, .device = *device});
  }
  return asked;
}

Problem problem_of(const Asked& asked) {
  return test::problem_in_words(asked.words.substr(asked.words.find(' ') + 1));
}

void ask(PlanService& plans, Asked& asked) {
  const Problem problem = problem_of(asked);
  const auto keyed = plans.key(problem, asked.device);
  if (!keyed) {
    asked.failure = keyed.error().message;
    return;
  }
  Probed& probed = asked.probed;
  probed.question = {problem, asked.device.capability(), keyed->version};
  for (const attention::Finding& each :
       attention::built_in_rules().evaluate(probed.question).refusals)
    probed.rules.push_back(each.id);
  const auto fetched = plans.fetch(*keyed);
  if (!fetched) {
    asked.failure = fetched.error().message;
    return;
  }
  probed.is_built = fetched->object != nullptr;
  if (probed.is_built) {
    const auto metadata = fetched->object->metadata();
    asked.build_ms = metadata ? metadata->compile_ms : 0;
  } else
    probed.message = to_string(fetched->attempts);
}

void ask_all(test::PlanBuilds& builds, std::vector<Asked>& asked) {
  std::atomic<std::size_t> next{0};
  test::in_threads(builds.service().jobs().get(), [&] {
    for (std::size_t at = next++; at < asked.size(); at = next++)
      ask(builds.plans(), asked[at]);
  });
}

/// "9.0 bwd: 40 plans, median 450 ms, longest 810 ms".
void print_build_times(const std::vector<Asked>& asked) {
  std::map<std::string, std::vector<std::uint64_t>> times;
  for (const Asked& each : asked) {
    if (each.probed.is_built)
      times[fmt::format("{:>4} {}", to_string(each.device.capability()),
                        word_of(each.probed.question.problem.pass))]
          .push_back(each.build_ms);
  }
  for (auto& [what, of] : times) {
    std::ranges::sort(of);
    fmt::print("{}: {} plans, median {} ms, longest {} ms\n", what, of.size(),
               of[of.size() / 2], of.back());
  }
}

std::string title(const Difference& difference) {
  return difference.rule.empty() ? "refused: " + difference.message
                                 : "denied by " + difference.rule;
}

std::string describe(const Asked& asked) {
  return asked.probed.is_built
             ? fmt::format("{}: cuDNN builds it, the rules deny it: {}", asked.words,
                           fmt::join(asked.probed.rules, ", "))
             : fmt::format("{}: the rules allow it, cuDNN refuses it: {}", asked.words,
                           asked.probed.message);
}

/// What was asked of one cuDNN, against what is known of it.
struct Comparison {
  std::size_t built = 0;
  std::size_t agreed = 0;
  std::vector<std::string> failures;  // neither a plan nor a refusal
  std::vector<std::string> allowed;   // by the rules, and refused by cuDNN
  std::vector<std::string> denied;    // by the rules, and built by cuDNN
  std::map<std::string, std::set<std::string>> met;  // of a difference, by its title
};

/// `allowed` and `denied` are those that no difference explains.
Comparison compare(const std::vector<Asked>& asked,
                   const std::vector<Difference>& differences) {
  Comparison comparison;
  for (const Asked& each : asked) {
    if (!each.failure.empty()) {
      comparison.failures.push_back(each.words + ": " + each.failure);
      continue;
    }
    const Probed& probed = each.probed;
    comparison.built += probed.is_built ? 1U : 0U;
    if (!differ(probed)) {
      ++comparison.agreed;
      continue;
    }
    const auto explanation = explanation_of(differences, probed);
    for (const Difference* const difference : explanation)
      comparison.met[title(*difference)].insert(each.words);
    if (explanation.empty())
      (probed.is_built ? comparison.denied : comparison.allowed)
          .push_back(describe(each));
  }
  fmt::print("{} problems, {} built; the rules agree on {}\n", asked.size(),
             comparison.built, comparison.agreed);
  for (const auto& [difference, words] : comparison.met)
    fmt::print("{:>4} {}\n", words.size(), difference);
  print_build_times(asked);
  return comparison;
}

TEST(ProbeAgainstTable, CudnnAndTheRulesDifferWhereItIsKnownWhyAndNowhereElse) {
  const auto differences = test::read_differences(
      test::paths::source("tests/integration/attention/differences.toml"));
  ASSERT_TRUE(differences) << differences.error().message;
  test::PlanBuilds builds;
  const auto devices = test::probed_devices();
  ASSERT_FALSE(devices.empty());
  const Problem first = test::problem_in_words("d=64");
  if (const auto why = builds.why_not(first, devices[0]); !why.empty())
    GTEST_SKIP() << "no plan can be built here: " << why;
  const auto version = builds.plans().key(first, devices[0])->version;
  if (version != differences->cudnn)
    GTEST_SKIP() << "the differences that are known are of cuDNN "
                 << to_string(differences->cudnn) << ", and here is "
                 << to_string(version) << "; see KILN_TEST_OTHER_CUDNN";

  auto asked = problems_to_ask(differences->list);
  ask_all(builds, asked);
  const Comparison comparison = compare(asked, differences->list);
  EXPECT_THAT(comparison.failures, IsEmpty());
  EXPECT_THAT(comparison.allowed, IsEmpty());
  EXPECT_THAT(comparison.denied, IsEmpty());
  for (const Difference& each : differences->list) {
    const auto met = comparison.met.find(title(each));
    for (const std::string& example : each.examples)
      EXPECT_TRUE(met != comparison.met.end() && met->second.contains(example))
          << "no difference any more: " << title(each) << ": " << example;
  }
}

// The path of one library, such as a wheel of nvidia-cudnn-cu12 holds, from 9.8 on; the
// NVRTC of its CUDA version is to be in KILN_NVRTC. One a process: two of them share
// what they load by name. An older version's rules, which frameworks wrote down, may
// ask for more than it does.
TEST(ProbeAgainstTable, AnotherVersionRefusesNothingThatTheRulesAllow) {
  const char* const library = std::getenv("KILN_TEST_OTHER_CUDNN");
  if (library == nullptr)
    GTEST_SKIP() << "set KILN_TEST_OTHER_CUDNN to the libcudnn.so.9 of another version";
  test::PlanBuilds builds(library);
  auto asked = problems_to_ask({});
  std::erase_if(asked, [&](const Asked& each) {
    const auto keyed = builds.plans().key(problem_of(each), each.device);
    EXPECT_TRUE(keyed) << keyed.error().message;
    return !keyed || !attention::evaluate(keyed->problem, each.device.capability(),
                                          keyed->version)
                          .supported;
  });
  ASSERT_FALSE(asked.empty());
  ask_all(builds, asked);
  const Comparison comparison = compare(asked, {});
  EXPECT_THAT(comparison.failures, IsEmpty());
  EXPECT_THAT(comparison.allowed, IsEmpty());
}

}  // namespace
}  // namespace kiln
