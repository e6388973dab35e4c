#include "tools/attention/plan_item.h"

#include <utility>

#include "attention/problem_codec.h"

namespace kiln::tools {

BuildItem problem_item(const attention::Problem& problem,
                       const AttentionTarget& target) {
  BuildItem item{.named_as = "template",
                 .name = std::string(PlanService::name_of(problem)),
                 .label = to_string(problem),
                 .params = {},
                 .arch = to_string(target.capability),
                 .device = target.device ? target.device->name : std::string(),
                 .kind = "plan",
                 .keyed = Error{}};
  for (const Field& field : attention::shown_fields(problem).list())
    item.params.emplace(field.label, field.value);
  return item;
}

BuildItem plan_item(PlanService& plans, const attention::Problem& problem,
                    const device::DeviceProperties& device) {
  BuildItem item = problem_item(problem, {device.capability(), device});
  auto keyed = plans.key(problem, device);
  if (keyed)
    item.keyed = *std::move(keyed);
  else
    item.keyed = std::move(keyed).error();
  return item;
}

}  // namespace kiln::tools
