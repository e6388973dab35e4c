// A plan service with a cache of its own, on the cuDNN of this machine.

#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "attention/plan.h"
#include "device/profile.h"
#include "plan_service.h"
#include "tests/support/service_requests.h"

namespace kiln::test {

/// 256 tokens with head dimension 64, which cuDNN runs everywhere; `change` makes it
/// another problem.
inline attention::Problem attention_problem(
    const std::function<void(attention::Problem&)>& change = {}) {
  attention::Problem problem{.dtype = ops::DType::kBf16,
                             .batch = 2,
                             .heads = 4,
                             .kv_heads = 4,
                             .sq = 256,
                             .skv = 256,
                             .dqk = 64,
                             .dv = 64};
  if (change)
    change(problem);
  set_strides(problem);
  return problem;
}

inline device::DeviceProperties published_device(const std::string& name) {
  return device::read_device_properties(name).value();
}

/// Skips where there is no cuDNN.
class PlanServiceFixture : public testing::Test {
 protected:
  struct Opened {
    std::unique_ptr<BuildService> builds;
    std::unique_ptr<PlanService> plans;
  };

  void SetUp() override {
    here_ = open();
    const auto keyed = here_.plans->key(attention_problem(), h200_);
    if (!keyed)
      GTEST_SKIP() << keyed.error().message;
  }

  /// Another service on the same cache, as another process would open it.
  [[nodiscard]] Opened open(const std::function<void(Config&)>& change = {}) const {
    Config config = service_config(cache_dir());
    if (const char* cudnn = std::getenv("KILN_CUDNN"))
      config.cudnn = cudnn;
    if (change)
      change(config);
    Opened opened;
    opened.builds = open_service(config);
    opened.plans = std::make_unique<PlanService>(*opened.builds);
    return opened;
  }

  KeyedPlan key(const attention::Problem& problem,
                const device::DeviceProperties& device) {
    auto keyed = here_.plans->key(problem, device);
    EXPECT_TRUE(keyed) << keyed.error().message;
    return keyed.value_or(KeyedPlan());
  }

  /// The plan, which must be there or be built; null where it is not.
  static std::shared_ptr<const cache::StoredObject> object_of(
      const Result<FetchedPlan>& fetched) {
    EXPECT_TRUE(fetched) << fetched.error().message;
    if (!fetched)
      return nullptr;
    EXPECT_NE(fetched->object, nullptr) << to_string(fetched->attempts);
    return fetched->object;
  }

  [[nodiscard]] std::filesystem::path cache_dir() const {
    return temp_.path() / "cache";
  }

  const TempDir temp_;
  const device::DeviceProperties h200_ = published_device("h200");
  Opened here_;
};

}  // namespace kiln::test
