// What an operation gives a kernel is what the kernel's text takes: the same names, one
// after the other, and values of the same sizes.

#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ops/attention.h"
#include "ops/attention_arguments.h"
#include "ops/cudnn_tensors.h"
#include "ops/plans.h"
#include "render/catalog.h"
#include "tests/support/attention_problem.h"
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

  /// That those were all that the family has.
  void expect_all_seen(std::string_view family) const {
    std::set<std::string> entries;
    const auto kernels = catalog_.family(family).value();
    for (const auto& kernel : kernels)
      entries.insert(kernel->entry_points().begin(), kernel->entry_points().end());
    EXPECT_EQ(seen_, entries);
  }

 private:
  render::TemplateCatalog catalog_ =
      render::TemplateCatalog::open(templates::embedded()).value();
  std::set<std::string> seen_;
};

constexpr auto kEither = {false, true};

TEST_F(KernelArguments, OfSoftmax) {
  for (const SoftmaxMask mask :
       {SoftmaxMask::kNone, SoftmaxMask::kBytes, SoftmaxMask::kCausal}) {
    SoftmaxForward forward{.dtype = DType::kBf16, .sq = 4, .skv = 8};
    SoftmaxBackward backward{.dtype = DType::kBf16, .sq = 4, .skv = 8};
    forward.mask = backward.mask = mask;
    expect_taken(forward);
    expect_taken(backward);
  }
  expect_all_seen("softmax");
}

template <typename Args>
Args of_rows() {
  Args args{.dtype = DType::kBf16};
  args.rows = 3;
  args.cols = 40;
  return args;
}

TEST_F(KernelArguments, OfNorms) {
  const auto expect_both = [&](auto forward, auto backward) {
    for (const bool adds_residual : kEither) {
      forward.adds_residual = backward.adds_residual = adds_residual;
      expect_taken(forward);
      for (const bool from_output : kEither) {
        backward.from_output = from_output;
        expect_taken(backward);
      }
    }
  };
  for (const bool has_weight : kEither) {
    for (const bool has_bias : kEither) {
      if (has_bias && !has_weight)
        continue;
      auto forward = of_rows<LayerNormForward>();
      auto backward = of_rows<LayerNormBackward>();
      forward.has_bias = backward.has_bias = has_bias;
      forward.has_weight = backward.has_weight = has_weight;
      expect_both(forward, backward);
    }
    auto forward = of_rows<RmsNormForward>();
    auto backward = of_rows<RmsNormBackward>();
    forward.has_weight = backward.has_weight = has_weight;
    expect_both(forward, backward);
  }
  expect_all_seen("norm");
}

TEST_F(KernelArguments, OfActivations) {
  const auto expect_both = [&](auto forward, auto backward) {
    for (const bool has_bias : kEither) {
      forward.has_bias = backward.has_bias = has_bias;
      expect_taken(forward);
      expect_taken(backward);
    }
  };
  for (const ActivationKind kind : {ActivationKind::kGeluTanh, ActivationKind::kGeluErf,
                                    ActivationKind::kSquaredRelu}) {
    auto forward = of_rows<ActivationForward>();
    auto backward = of_rows<ActivationBackward>();
    forward.kind = backward.kind = kind;
    expect_both(forward, backward);
  }
  for (const GluKind kind : {GluKind::kSwiglu, GluKind::kGegluTanh, GluKind::kGegluErf,
                             GluKind::kReglu, GluKind::kClampedSwiglu}) {
    auto forward = of_rows<GluForward>();
    auto backward = of_rows<GluBackward>();
    forward.kind = backward.kind = kind;
    for (auto* const number : {&forward.alpha, &forward.limit, &forward.offset,
                               &backward.alpha, &backward.limit, &backward.offset})
      *number = 1;
    expect_both(forward, backward);
    forward.has_weight = backward.has_weight = true;
    expect_taken(forward);
    expect_taken(backward);
  }
  expect_all_seen("activation");
}

TEST_F(KernelArguments, OfCrossEntropy) {
  const auto expect = [&](auto args) {
    args.dtype = DType::kBf16;
    args.rows = 3;
    args.vocabulary = 10;
    expect_taken(args);
  };
  expect(CrossEntropy{});
  expect(CrossEntropyForward{});
  expect(CrossEntropyBackward{});
  expect_all_seen("cross_entropy");
}

TEST_F(KernelArguments, OfRope) {
  static constexpr float kAngle = 0;
  const RopeStrides strides{.batch = 16, .sequence = 16, .head = 8};
  const RopeTensor tensor{.heads = 2, .out_strides = strides, .in_strides = strides};
  RopeArguments args;
  args.dtype = DType::kBf16;
  args.style = RopeStyle::kHalf;
  args.batch = args.sequence = 1;
  args.head_dim = args.rotary_dim = 8;
  args.q = args.k = tensor;
  for (const bool has_angles : kEither) {
    args.table = {.dtype = DType::kF32, .positions = 1, .columns = 8};
    if (has_angles)
      args.table.angles = &kAngle;
    else
      args.table.cos = args.table.sin = &kAngle;
    expect_taken(RopeForward{args});
    expect_taken(RopeBackward{args});
  }
  expect_all_seen("rope");
}

TEST_F(KernelArguments, OfAttention) {
  const auto expect = [&](attention::Problem problem) {
    expect_taken(AttentionCall{problem, {}});
    problem.bias_gradient = problem.bias_kind == attention::Bias::kPostScale;
    expect_taken(AttentionCall{test::backward_of(problem), {}});
  };
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    expect(test::attention_problem([&](auto& problem) { problem.dtype = dtype; }));
    expect(test::attention_problem([&](auto& problem) {
      problem.dtype = dtype;
      problem.bias_kind = attention::Bias::kPostScale;
    }));
  }
  const attention::Problem padded = test::attention_problem(
      [](auto& problem) { problem.mask = attention::Mask::kPadding; });
  expect_plan_taken(empty_sequence_launches({padded, {}}));
  expect_plan_taken(empty_sequence_launches({test::backward_of(padded), {}}));
  expect_all_seen("attention");
}

TEST_F(KernelArguments, OfPackedSequences) {
  const attention::Problem problem = test::attention_problem(
      [](auto& packed) { packed.layout = attention::Layout::kThd; });
  expect_plan_taken(sequence_launches(AttentionCall{problem, {}}));
  expect_all_seen("attention_sequences");
}

}  // namespace
}  // namespace kiln::ops::kernel_arguments_checks
