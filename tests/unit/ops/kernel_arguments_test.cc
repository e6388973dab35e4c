// What an operation gives a kernel is what the kernel's text takes: the same names, one
// after the other, and values of the same sizes.

#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interface/enumeration_words.h"
#include "ops/attention.h"
#include "ops/attention_arguments.h"
#include "ops/cudnn_tensors.h"
#include "ops/plans.h"
#include "render/catalog.h"
#include "tests/support/attention_problem.h"
#include "tests/support/operations/sample_call.h"
#include "tests/unit/ops/refusals.h"

namespace kiln::ops::kernel_arguments_checks {
namespace {

const Device kDevice{.name = "planned", .capability = {9, 0}, .multiprocessors = 132};

struct Signature {
  std::vector<std::string> names;
  std::vector<std::size_t> sizes_bytes;
};

std::size_t size_of_type(std::string_view type) {
  const auto has = [&](std::string_view word) {
    return type.find(word) != std::string_view::npos;
  };
  if (has("*") || has("kiln_i64"))
    return 8;
  if (has("kiln_attention"))
    return sizeof(AttentionSizes);
  if (has("kiln_mask"))
    return 48;
  return has("kiln_sequences") ? 56 : 4;  // else an int or a float
}

/// Of the parameters in `text` behind the entry point's name.
Signature signature_of(const std::string& text, const std::string& entry) {
  const std::size_t begin = text.find('\n' + entry + '(') + entry.size() + 2;
  std::istringstream parameters(text.substr(begin, text.find(')', begin) - begin));
  Signature all;
  for (std::string parameter; std::getline(parameters, parameter, ',');) {
    const std::size_t end = parameter.find_last_not_of(" \n") + 1;
    const std::size_t name = parameter.find_last_of(" \n", end - 1) + 1;
    all.names.push_back(parameter.substr(name, end - name));
    all.sizes_bytes.push_back(size_of_type(parameter.substr(0, name)));
  }
  return all;
}

class KernelArguments : public testing::Test {
 protected:
  template <typename Args>
  void expect_taken(const Args& args) {
    expect_plan_taken(plan(args, kDevice).value());
  }
  void expect_plan_taken(const Launches& launches) {
    ASSERT_FALSE(launches.empty());
    for (const Launch& launch : launches) {
      const auto kernel = catalog_.find(launch.kernel).value();
      const auto parameters = kernel->canonical(launch.parameters).value();
      const std::string text = kernel->render(parameters).value().text;
      const std::string entry = launch.entry.empty() ? launch.kernel : launch.entry;
      const Signature taken = signature_of(text, entry);
      EXPECT_THAT(launch.arguments.names(), testing::ElementsAreArray(taken.names))
          << entry;
      EXPECT_EQ(launch.arguments.sizes_bytes(), taken.sizes_bytes) << entry;
      seen_.insert(entry);
    }
  }

  /// That those were all that the families have.
  void expect_all_seen(std::initializer_list<std::string_view> families) const {
    std::set<std::string> entries;
    for (const std::string_view family : families) {
      const auto kernels = catalog_.family(family).value();
      for (const auto& kernel : kernels)
        entries.insert(kernel->entry_points().begin(), kernel->entry_points().end());
    }
    EXPECT_EQ(seen_, entries);
  }

 private:
  render::TemplateCatalog catalog_ =
      render::TemplateCatalog::open(templates::embedded()).value();
  std::set<std::string> seen_;
};

/// The operation with each option that its kernel's arguments depend on, each with
/// each; some are refused.
template <typename Args>
std::vector<Args> forms_of() {
  std::vector<Args> forms;
  for (const test::Sample sample : test::samples_of<Args>())
    forms.push_back(test::sample_call<Args>(sample));
#define KILN_EACH(member, last)                                  \
  if constexpr (requires(Args args) { args.member; }) {          \
    const std::vector<Args> all = std::exchange(forms, {});      \
    for (Args form : all) {                                      \
      for (int value = 0; value <= (last); ++value) {            \
        form.member = static_cast<decltype(form.member)>(value); \
        forms.push_back(form);                                   \
      }                                                          \
    }                                                            \
  }
  KILN_EACH(kind, 5)
  KILN_EACH(mask, 2)
  KILN_EACH(has_bias, 1)
  KILN_EACH(has_weight, 1)
  KILN_EACH(adds_residual, 1)
  KILN_EACH(from_output, 1)
#undef KILN_EACH
  return forms;
}

/// A kind that is not set or none; a bias of a norm without a weight, or of a gated
/// activation with one.
template <typename Args>
bool is_refused_form(const Args& args) {
  if constexpr (requires { args.kind; })
    if (word_of(args.kind) == kUnsetWord)
      return true;
  if constexpr (requires {
                  args.has_bias;
                  args.has_weight;
                })
    return args.has_bias && args.has_weight == test::kIsGlu<Args>;
  return false;
}

TEST_F(KernelArguments, OfEachOperationInEachForm) {
#define KILN_EXPECT(function, Args)           \
  for (const Args& args : forms_of<Args>()) { \
    if (is_refused_form(args))                \
      continue;                               \
    auto launches = plan(args, kDevice);      \
    ASSERT_TRUE(launches);                    \
    expect_plan_taken(*launches);             \
  }
  KILN_EACH_OPERATION(KILN_EXPECT)
#undef KILN_EXPECT
  expect_all_seen({"softmax", "norm", "activation", "cross_entropy", "rope"});
}

TEST_F(KernelArguments, OfAttention) {
  const auto expect = [&](attention::Problem problem) {
    expect_taken(AttentionCall{problem, {}});
    problem.bias_gradient = problem.bias_kind == attention::Bias::kPostScale;
    expect_taken(AttentionCall{test::backward_of(problem), {}});
  };
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    expect(test::attention_problem([&](auto& problem) { problem.dtype = dtype; }));
    for (const auto bias : {attention::Bias::kPostScale, attention::Bias::kBoolean})
      expect(test::attention_problem([&](auto& problem) {
        problem.dtype = dtype;
        problem.bias_kind = bias;
      }));
  }
  const attention::Problem masked = test::attention_problem(
      [](auto& problem) { problem.bias_kind = attention::Bias::kBoolean; });
  expect_plan_taken(launches_before_plan({masked, {}}));
  const attention::Problem padded = test::attention_problem(
      [](auto& problem) { problem.mask = attention::Mask::kPadding; });
  expect_plan_taken(empty_sequence_launches({padded, {}}));
  expect_plan_taken(empty_sequence_launches({test::backward_of(padded), {}}));
  expect_all_seen({"attention"});
}

TEST_F(KernelArguments, OfPackedSequences) {
  const attention::Problem problem = test::attention_problem(
      [](auto& packed) { packed.layout = attention::Layout::kThd; });
  expect_plan_taken(launches_before_plan(AttentionCall{problem, {}}));
  expect_all_seen({"attention_sequences"});
}

}  // namespace
}  // namespace kiln::ops::kernel_arguments_checks
