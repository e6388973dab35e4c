#include "tests/support/operations/run_operation.h"

#include <algorithm>
#include <utility>

#include "ops/plans.h"
#include "tests/support/cpu_kernel/run_plan.h"
#include "util/try.h"

namespace kiln::test {

Device operations_device(const Schedule& schedule) {
  return kiln_cpu::planned_device(schedule.capability, schedule.multiprocessors);
}

Result<void> run_operation(const Operation& operation, const Schedule& schedule) {
  return std::visit(
      [&](const auto& args) -> Result<void> {
        ops::Launches plan =
            KILN_TRY(ops::plan(args, operations_device(schedule),
                               schedule.checks_pointers ? ops::Pointers::kChecked
                                                        : ops::Pointers::kIgnored));
        for (ops::Launch& launch : plan) {
          for (auto& [name, extent] : launch.extents) {
            if (const auto most = schedule.most.find(name); most != schedule.most.end())
              extent = std::min(extent, most->second);
          }
        }
        return kiln_cpu::run_plan(std::move(plan), kiln_cpu::kernels_of_program(),
                                  {.order = schedule.order});
      },
      operation);
}

}  // namespace kiln::test
