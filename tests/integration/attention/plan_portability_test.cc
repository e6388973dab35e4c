// What cuDNN compares of a device when it loads a plan, found by asking it: with each
// of the 23 properties changed, and with each published device. Kiln's own list must be
// that. cuDNN is loaded in this process, and before it the driver without devices.

#include <cudnn.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "attention/plan_binding.h"
#include "device/profile.h"
#include "tests/integration/attention/plan_builds.h"
#include "tests/support/attention_words.h"
#include "tests/support/nvrtc.h"
#include "tests/support/paths.h"
#include "tests/support/print_name.h"
#include "tests/support/test.h"
#include "tests/support/value_of.h"

namespace kiln {
namespace {

using nlohmann::json;
using test::PrintTo;

/// What of cuDNN loads a plan. Thread safety: none.
class Loader {
 public:
  /// Errors: kUnavailable, in the loader's words.
  static Result<Loader> open(const std::filesystem::path& cudnn) {
    // Open for good: cuDNN opens one for each plan and closes it again, and each time
    // it leaves memory behind.
    if (const auto nvrtc = test::nvrtc_libraries(); !nvrtc.empty())
      std::ignore = ::dlopen(nvrtc.front().path.c_str(), RTLD_NOW | RTLD_LOCAL);
    for (const std::filesystem::path& path :
         {std::filesystem::path(test::paths::kNoDeviceDriver), cudnn}) {
      if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
        return fail(ErrorCode::kUnavailable, ::dlerror());
    }
    return Loader();
  }

  /// "": loaded. Else cuDNN's status and words.
  [[nodiscard]] std::string load(const std::string& plan,
                                 const std::string& device) const {
    cudnnBackendDescriptor_t properties = nullptr;
    cudnnBackendDescriptor_t loaded = nullptr;
    cudnnStatus_t status = create_(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &properties);
    const auto step = [&](auto&& call) {
      if (status == CUDNN_STATUS_SUCCESS)
        status = call();
    };
    step([&] {
      return set_(properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                  CUDNN_TYPE_CHAR, static_cast<std::int64_t>(device.size()),
                  device.data());
    });
    step([&] { return finalize_(properties); });
    step([&] { return create_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &loaded); });
    step([&] {
      return set_(loaded, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &properties);
    });
    step([&] {
      return set_(loaded, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                  CUDNN_TYPE_CHAR, static_cast<std::int64_t>(plan.size()), plan.data());
    });
    step([&] { return finalize_(loaded); });
    std::string message;
    if (status != CUDNN_STATUS_SUCCESS) {
      std::array<char, 512> words{};
      last_error_(words.data(), words.size());
      message = fmt::format("{} {}", error_(status), words.data());
    }
    for (const cudnnBackendDescriptor_t each : {loaded, properties}) {
      if (each != nullptr)
        std::ignore = destroy_(each);
    }
    return message;
  }

 private:
  Loader() = default;

  template <typename Function>
  static Function* find(const char* name) {
    return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  }

  decltype(&cudnnBackendCreateDescriptor) create_ =
      find<decltype(cudnnBackendCreateDescriptor)>("cudnnBackendCreateDescriptor");
  decltype(&cudnnBackendSetAttribute) set_ =
      find<decltype(cudnnBackendSetAttribute)>("cudnnBackendSetAttribute");
  decltype(&cudnnBackendFinalize) finalize_ =
      find<decltype(cudnnBackendFinalize)>("cudnnBackendFinalize");
  decltype(&cudnnBackendDestroyDescriptor) destroy_ =
      find<decltype(cudnnBackendDestroyDescriptor)>("cudnnBackendDestroyDescriptor");
  decltype(&cudnnGetErrorString) error_ =
      find<decltype(cudnnGetErrorString)>("cudnnGetErrorString");
  decltype(&cudnnGetLastErrorString) last_error_ =
      find<decltype(cudnnGetLastErrorString)>("cudnnGetLastErrorString");
};

/// A problem, and the published device that its plan is for.
struct BuiltFor {
  const char* name;
  const char* device;
  const char* problem;
};

/// The other values that are tried of a property.
std::vector<json> changes_of(const json& value) {
  if (value.is_string())
    return {"another device"};
  if (value.is_array()) {
    std::vector<json> changes;
    for (std::size_t i = 0; i < value.size(); ++i) {
      changes.push_back(value);
      changes.back()[i] = value[i].get<std::int64_t>() / 2;
    }
    return changes;
  }
  const auto number = value.get<std::int64_t>();
  return number < 2 ? std::vector<json>{1 - number}
                    : std::vector<json>{number - 1, number + 1, number / 2};
}

class PlanPortability : public testing::TestWithParam<BuiltFor> {
 protected:
  void SetUp() override {
    const auto device =
        test::value_of(device::read_device_properties(GetParam().device));
    const auto keyed =
        builds_.plans().key(test::problem_in_words(GetParam().problem), device);
    if (!keyed)
      GTEST_SKIP() << "no plan can be built here: " << keyed.error().message;
    const auto fetched = test::value_of(builds_.plans().fetch(*keyed));
    ASSERT_NE(fetched.object, nullptr) << to_string(fetched.attempts);
    const auto plan = test::value_of(attention::decode_plan(fetched.object->payload()));
    plan_ = plan;
    device_ = json::parse(device.cudnn_json());
    // After the workers, which are started with this process's descriptors.
    const auto loader = test::value_of(Loader::open(keyed->cudnn));
    loader_.emplace(loader);
  }

  /// cuDNN's answer, after which Kiln's is looked at: both say yes, or both no.
  [[nodiscard]] std::string load(const std::string& device,
                                 const std::string& what) const {
    const std::string refusal = loader_->load(plan_.json, device);
    const auto bound = attention::binding_of(device);
    EXPECT_TRUE(bound) << what;
    const std::string difference =
        bound ? attention::describe_difference(plan_.bound, *bound) : "";
    // An older version may compare less.
    EXPECT_TRUE(refusal.empty() ? difference.empty() || !is_known_version()
                                : !difference.empty())
        << what << ": cuDNN says '" << refusal << "', Kiln '" << difference << "'";
    return refusal;
  }

  [[nodiscard]] bool is_known_version() const {
    return plan_.cudnn >= attention::CudnnVersion{9, 19, 0};
  }

  test::PlanBuilds builds_;
  attention::Plan plan_;
  json device_;
  std::optional<Loader> loader_;
};

TEST_P(PlanPortability, WhatKilnComparesIsWhatCudnnCompares) {
  ASSERT_EQ(device_.size(), 23U);
  EXPECT_THAT(load(device_.dump(), "the same device"), IsEmpty());
  std::set<std::string> compared;
  for (const auto& [name, value] : device_.items()) {
    for (const json& change : changes_of(value)) {
      json other = device_;
      other[name] = change;
      const auto refusal = load(other.dump(), name + " = " + change.dump());
      if (refusal.empty())
        continue;
      compared.insert(name);
      EXPECT_THAT(refusal, HasSubstr("CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH"));
    }
  }
  std::set<std::string> known;
  for (const auto& bound : test::value_of(attention::binding_of(device_.dump())))
    known.insert(bound.name);
  if (is_known_version())
    EXPECT_EQ(compared, known);
  else
    EXPECT_TRUE(std::ranges::includes(known, compared));
}

TEST_P(PlanPortability, IsToldAlikeForEachPublishedDevice) {
  std::set<std::string> runs_on;
  for (const device::PublishedProfile& each : device::published_profiles()) {
    const auto device = test::value_of(device::parse_device_properties(each.text));
    if (load(device.cudnn_json(), std::string(each.name)).empty())
      runs_on.emplace(each.name);
  }
  EXPECT_THAT(runs_on, testing::Contains(GetParam().device));
  const std::string_view device = GetParam().device;
  if (is_known_version() && (device == "h100-sxm" || device == "h200")) {
    EXPECT_EQ(runs_on, (std::set<std::string>{"h100-sxm", "h200"}));
  }
}

TEST(PlanPortabilityOfH100, SaysWhatDiffersWithPcie) {
  std::vector<std::vector<attention::BoundProperty>> bound;
  for (const char* const name : {"h100-sxm", "h100-pcie"}) {
    const auto device = test::value_of(device::read_device_properties(name));
    bound.push_back(attention::binding_of(device.cudnn_json()).value());
  }
  EXPECT_EQ(attention::describe_difference(bound[0], bound[1]),
            "multiProcessorCount is 132 in the plan, 114 here");
}

std::string name_of(const testing::TestParamInfo<BuiltFor>& built) {
  return built.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    Plans, PlanPortability,
    testing::Values(BuiltFor{"ForwardOnA100", "a100-sxm-80gb", "causal"},
                    BuiltFor{"ForwardOnH200", "h200", "causal"},
                    BuiltFor{"BackwardOnH100", "h100-sxm", "bwd causal"},
                    BuiltFor{"ForwardOnB200", "b200", "d=64"},
                    BuiltFor{"ForwardOnRtx5090", "rtx-5090", "d=64"}),
    name_of);

}  // namespace
}  // namespace kiln
