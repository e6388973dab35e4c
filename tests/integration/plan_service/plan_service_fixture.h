// A plan service with a cache of its own, on the cuDNN of this machine.

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "attention/plan.h"
#include "cudnn/plan_service.h"
#include "tests/support/attention_problem.h"
#include "tests/support/service_requests.h"

namespace kiln::test {

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
    if (!keyed) {
      ASSERT_EQ(keyed.error().message.find("cannot be used"), std::string::npos)
          << keyed.error().message;
      GTEST_SKIP() << keyed.error().message;
    }
  }

  /// Another service on the same cache, as another process would open it.
  [[nodiscard]] Opened open(const std::function<void(Config&)>& change = {}) const {
    Config config = service_config(cache_dir());
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
