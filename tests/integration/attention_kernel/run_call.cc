// On this CPU: the operation's own plan, with the kernels of this program.

#include "tests/integration/attention_kernel/call.h"
#include "tests/support/kernels/run_plan.h"
#include "util/try.h"

namespace kiln::attention_test {

Result<void> run_call(const ops::AttentionCall& call, const Setting& setting) {
  ops::Launches plan =
      KILN_TRY(ops::plan(call, kiln_cpu::planned_device(setting.capability)));
  return kiln_cpu::run_plan(std::move(plan), kiln_cpu::kernels_of_program(),
                            {.order = setting.order, .capability = setting.capability});
}

}  // namespace kiln::attention_test
