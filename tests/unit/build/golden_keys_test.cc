// What keys are made of, kept as text: a change that is not meant to touch them leaves
// every cache in the world as it is. Masked is what belongs to a build of Kiln and not
// to a request: the digest of the renderer's own files, and the frontend's version.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "attention/plan_binding.h"
#include "build/request_keys.h"
#include "cudnn/plan_service.h"
#include "request/selection.h"
#include "tests/support/attention_problem.h"
#include "tests/support/golden.h"
#include "tests/support/service_requests.h"

namespace kiln {
namespace {

Fields masked(const Fields& preimage) {
  Fields fields;
  for (const auto& [label, value] : preimage.list()) {
    const bool is_of_build = label == "template/renderer" || label == "frontend";
    fields.add(label, is_of_build ? "-" : value);
  }
  return fields;
}

std::string shown(std::string_view title, const Fields& preimage) {
  std::string text = fmt::format("[{}]\n", title);
  for (const auto& [label, value] : masked(preimage).list())
    text += fmt::format("{} = {}\n", label, value);
  return text + "\n";
}

class GoldenKeys : public testing::Test {
 protected:
  GoldenKeys() {
    device::ToolchainChoice choice;
    choice.toolchain.id = {"nvrtc-id", "builtins-id"};
    choice.toolchain.facts.version = {13, 0};
    toolchain_ = std::make_shared<const device::ToolchainChoice>(std::move(choice));
  }

  Fields preimage(const request::ResolvedRequest& request, device::Target target) {
    const auto prepared = RequestKeys::prepare(request).value();
    return keys_.preimage(keys_.key(prepared, target, toolchain_).value());
  }

  test::TempDir dir_;
  std::unique_ptr<BuildService> service_ =
      test::open_service(test::service_config(dir_.path()));
  std::shared_ptr<const device::ToolchainChoice> toolchain_;
  RequestKeys keys_{OwnFolder()};
};

constexpr device::Target kHopper{{{9, 0}, {}}, device::ImageKind::kCubin};

TEST_F(GoldenKeys, OfASourceATemplateAndPlansHaveTheFieldsTheyHad) {
  SourceOptions source;
  source.source = "template <int N> __global__ void k(int* x) { *x = N; }\n";
  source.file_name = "k.cu";
  source.options = {"--use_fast_math", "-DLAST=1"};
  source.defines = {"FIRST=2"};
  source.headers = {{"own.h", "#define OWN 1\n"}};
  source.name_expressions = {"k<1>", "k<2>"};
  std::string text = shown(
      "source", preimage(request::resolve_source(std::move(source)).value(), kHopper));
  const auto wanted = request::resolve({"scaled_softmax_fwd", {{"dtype", "bf16"}}},
                                       service_->catalog());
  text += shown("template", preimage(wanted.value(), kHopper));
  KeyedPlan plan;
  plan.device = test::published_device("h200");
  plan.bound = attention::binding_of(plan.device.cudnn_json()).value();
  plan.version = {9, 19, 0};
  plan.problem = test::attention_problem();
  text += shown("forward plan", PlanService::preimage(plan));
  plan.problem = test::backward_of(test::attention_problem());
  text += shown("backward plan", PlanService::preimage(plan));
  test::expect_golden("tests/unit/build/golden/preimages.txt", text);
}

TEST_F(GoldenKeys, OfEveryBuiltInKernelAreWhatTheyWere) {
  std::string text;
  for (const std::string& name : service_->catalog().names()) {
    request::Selection selection(service_->catalog());
    ASSERT_TRUE(selection.add_template(name));
    const request::TemplateRequest& first = selection.requests().front();
    text += fmt::format("{} {}\n", masked(preimage(first, kHopper)).digest().hex(),
                        request::format_template(name, first.params.values()));
  }
  test::expect_golden("tests/unit/build/golden/keys.txt", text);
}

}  // namespace
}  // namespace kiln
