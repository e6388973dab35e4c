#include <algorithm>

#include "ops/plans.h"
#include "tests/support/operations/run_operation.h"
#include "util/try.h"

namespace kiln::test {

Result<ops::Launches> plan_operation(const Operation& operation, const Device& device,
                                     const Schedule& schedule) {
  const auto pointers =
      schedule.checks_pointers ? ops::Pointers::kChecked : ops::Pointers::kIgnored;
  auto plan = KILN_TRY(std::visit(
      [&](const auto& args) { return ops::plan(args, device, pointers); }, operation));
  for (ops::Launch& launch : plan) {
    for (auto& [name, extent] : launch.extents) {
      if (const auto most = schedule.most.find(name); most != schedule.most.end())
        extent = std::min(extent, most->second);
    }
  }
  return plan;
}

}  // namespace kiln::test
