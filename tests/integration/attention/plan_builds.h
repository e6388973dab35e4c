// Plans by the real cuDNN in a test's own process; skips what it cannot have.

#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cudnn/plan_service.h"
#include "tests/support/service_requests.h"

namespace kiln::test {

/// A service of plans over a cache of its own, with `cudnn`, else with
/// KILN_CUDNN, else with what this machine has.
class PlanBuilds {
 public:
  explicit PlanBuilds(std::optional<std::filesystem::path> cudnn = std::nullopt) {
    Config config = service_config(temp_.path() / "cache");
    if (cudnn)
      config.cudnn = *std::move(cudnn);
    service_ = open_service(config);
    plans_ = std::make_unique<PlanService>(*service_);
  }

  [[nodiscard]] BuildService& service() { return *service_; }
  [[nodiscard]] PlanService& plans() { return *plans_; }

  /// Why no plan can be built here, for want of a library or of the worker; empty: it
  /// can. Builds one.
  [[nodiscard]] std::string why_not(const attention::Problem& problem,
                                    const device::DeviceProperties& device) {
    const auto keyed = plans_->key(problem, device);
    if (!keyed)
      return keyed.error().message;
    const auto fetched = plans_->fetch(*keyed);
    if (fetched)
      return "";
    EXPECT_EQ(fetched.error().code, ErrorCode::kUnavailable) << fetched.error().message;
    return fetched.error().message;
  }

 private:
  const TempDir temp_;
  std::unique_ptr<BuildService> service_;
  std::unique_ptr<PlanService> plans_;
};

}  // namespace kiln::test
