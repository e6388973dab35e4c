// kiln attention why: explains a missing plan by the nearest entry in the cache.

#include <fmt/format.h>

#include "tools/attention/command.h"
#include "tools/open_cache.h"
#include "tools/why_answer.h"
#include "util/try.h"

namespace kiln::tools {

Result<int> explain_missing_plan(Context& context, const AttentionOptions& options) {
  const auto problem = KILN_TRY(read_problem(options.problem));
  const auto devices = KILN_TRY(plan_devices(context.config, options));
  if (devices.size() != 1)
    return wrong_attention(
        "why explains one device at a time, and there are several: --profile "
        "FILE|NAME");
  const auto service = KILN_TRY(open_to_look(context, context.config));
  PlanService plans(*service, context.stop->token());
  const KeyedPlan keyed = KILN_TRY(plans.key(problem, devices.front()));
  const auto note = fmt::format("cudnn-{} ({}), for {}", to_string(keyed.version),
                                keyed.cudnn.native(), keyed.device.name);
  print_answer(KILN_TRY(MissExplainer(service->cache())
                            .explain(keyed.key, PlanService::compared(keyed), note)),
               context.json, context.out);
  return kAllDone;
}

}  // namespace kiln::tools
