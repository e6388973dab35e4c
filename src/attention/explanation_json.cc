#include "attention/explanation_json.h"

#include <nlohmann/json.hpp>

namespace kiln::attention {
namespace {

using nlohmann::ordered_json;

ordered_json findings_json(const std::vector<Finding>& findings) {
  ordered_json list = ordered_json::array();
  for (const Finding& each : findings)
    list.push_back({{"id", each.id}, {"reason", each.reason}, {"remedy", each.remedy}});
  return list;
}

ordered_json cudnn_json(const Verdict& verdict, const Probe& probe) {
  return {{"supported", verdict.supported},
          {"rules", findings_json(verdict.refusals)},
          {"policies", findings_json(verdict.policies)},
          {"probe",
           {{"ran", probe.ran},
            {"built", probe.built},
            {"status", probe.status},
            {"message", probe.message}}}};
}

ordered_json kiln_json(const OwnKernel& kernel) {
  return {{"supported", kernel.supported}, {"reason", kernel.reason}};
}

}  // namespace

ordered_json to_json(const Explanation& explanation) {
  ordered_json steps = ordered_json::array();
  for (const Step& step : explanation.steps) {
    steps.push_back({{"sq", step.problem.sq},
                     {"skv", step.problem.skv},
                     {"mask", to_string(step.problem.mask)},
                     {"heads", step.problem.heads},
                     {"chosen", to_string(step.chosen)},
                     {"cudnn", cudnn_json(step.cudnn, step.probe)},
                     {"kiln", kiln_json(step.kiln)}});
  }
  return {{"chosen", to_string(explanation.chosen)},
          {"cudnn", cudnn_json(explanation.cudnn, explanation.probe)},
          {"kiln", kiln_json(explanation.kiln)},
          {"steps", steps}};
}

}  // namespace kiln::attention
