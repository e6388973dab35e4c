#include "attention/explanation_json.h"

#include <nlohmann/json.hpp>

namespace kiln::attention {
namespace {

using nlohmann::ordered_json;

ordered_json findings_json(const std::vector<Finding>& findings) {
  ordered_json list = ordered_json::array();
  for (const auto& [id, kind, reason, remedy] :
       findings)  // rules and policies are two lists
    list.push_back({{"id", id}, {"reason", reason}, {"remedy", remedy}});
  return list;
}

ordered_json cudnn_json(const Verdict& verdict, const Probe& probe) {
  const auto& [supported, refusals, policies, first_supported] = verdict;
  const auto& [ran, built, status, message] = probe;
  return {{"supported", supported},
          {"rules", findings_json(refusals)},
          {"policies", findings_json(policies)},
          {"probe",
           {{"ran", ran}, {"built", built}, {"status", status}, {"message", message}}}};
}

ordered_json kiln_json(const OwnKernel& kernel) {
  const auto& [supported, reason] = kernel;
  return {{"supported", supported}, {"reason", reason}};
}

}  // namespace

ordered_json to_json(const Explanation& explanation) {
  ordered_json steps = ordered_json::array();
  for (const auto& [problem, chosen, cudnn, probe, kiln] : explanation.steps) {
    steps.push_back({{"sq", problem.sq},
                     {"skv", problem.skv},
                     {"mask", word_of(problem.mask)},
                     {"heads", problem.heads},
                     {"chosen", to_string(chosen)},
                     {"cudnn", cudnn_json(cudnn, probe)},
                     {"kiln", kiln_json(kiln)}});
  }
  const auto& [chosen, cudnn, probe, kiln, of_steps] = explanation;
  return {{"chosen", to_string(chosen)},
          {"cudnn", cudnn_json(cudnn, probe)},
          {"kiln", kiln_json(kiln)},
          {"steps", steps}};
}

}  // namespace kiln::attention
