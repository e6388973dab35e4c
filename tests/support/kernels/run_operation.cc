#include "tests/support/operations/run_operation.h"

#include "tests/support/kernels/large_tensors.h"
#include "tests/support/kernels/run_plan.h"
#include "util/try.h"

namespace kiln::test {

Device operations_device(const Schedule& schedule) {
  return kiln_cpu::planned_device(schedule.capability, schedule.multiprocessors);
}

Result<void> run_operation(const Operation& operation, const Schedule& schedule) {
  KILN_TRY(kiln_cpu::run_plan(
      KILN_TRY(plan_operation(operation, operations_device(schedule), schedule)),
      kiln_cpu::kernels_of_program(),
      {.order = schedule.order, .capability = schedule.capability}));
  if (schedule.in_large_tensors_too)
    kiln_cpu::expect_same_in_large_tensors(operation);
  return {};
}

}  // namespace kiln::test
