// kiln templates [NAME]: lists what can be requested by name.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "request/selection.h"
#include "tools/catalog.h"
#include "tools/verbs.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

using nlohmann::ordered_json;
using Kernels = std::vector<std::shared_ptr<const render::KernelSpec>>;

struct TemplatesOptions {
  std::string name;
  CatalogOptions catalog;
};

ordered_json parameter_json(const render::Parameter& parameter) {
  ordered_json json = {{"name", parameter.name},
                       {"type", to_string(parameter.type)},
                       {"values", parameter.values},
                       {"min", nullptr},
                       {"max", nullptr},
                       {"default", nullptr},
                       {"meaning", parameter.meaning}};
  if (parameter.type == render::ParameterType::kInteger) {
    json["min"] = parameter.min;
    json["max"] = parameter.max;
  }
  if (parameter.default_value)
    json["default"] = *parameter.default_value;
  return json;
}

std::vector<std::string> target_texts(const render::KernelSpec& kernel) {
  std::vector<std::string> texts{to_string(kernel.targets().minimum) + "+"};
  for (const device::Architecture& architecture : kernel.targets().suffixed)
    texts.push_back(to_string(architecture));
  return texts;
}

ordered_json kernel_json(const render::KernelSpec& kernel) {
  ordered_json parameters = ordered_json::array();
  for (const render::Parameter& parameter : kernel.parameters())
    parameters.push_back(parameter_json(parameter));
  return {{"name", kernel.name()},
          {"summary", kernel.summary()},
          {"parameters", parameters},
          {"entry_points", kernel.entry_points()},
          {"targets", target_texts(kernel)}};
}

std::string allowed_values(const render::Parameter& parameter) {
  if (parameter.type == render::ParameterType::kInteger) {
    return fmt::format("{}..{}{}", parameter.min, parameter.max,
                       parameter.power_of_two ? ", a power of two" : "");
  }
  return fmt::format("{}", fmt::join(parameter.values, "|"));
}

void print_overview(const Kernels& kernels, const Terminal& terminal) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& kernel : kernels) {
    rows.push_back({kernel->name(), kernel->family(),
                    std::to_string(kernel->default_set().size()), kernel->summary()});
  }
  print(format_table({{"NAME"},
                      {.title = "FAMILY", .leave_out = 1},
                      {.title = "VARIANTS", .align = Align::kRight, .leave_out = 2},
                      {.title = "SUMMARY", .cut = Cut::kEnd}},
                     rows, terminal));
}

void print_details(const render::KernelSpec& kernel, const Terminal& terminal) {
  print(terminal.fitted(fmt::format(
      "{}  {}\n\n", terminal.styled(kernel.name(), Style::kBold), kernel.summary())));
  std::vector<std::vector<std::string>> rows;
  for (const render::Parameter& parameter : kernel.parameters()) {
    rows.push_back({parameter.name, allowed_values(parameter),
                    parameter.default_value.value_or("(required)"), parameter.meaning});
  }
  print(format_table({{"PARAMETER"},
                      {.title = "VALUES", .may_wrap = true},
                      {"DEFAULT"},
                      {.title = "MEANING", .may_wrap = true}},
                     rows, terminal));
  rows.clear();
  for (const render::LaunchArgument& argument : kernel.launch_arguments())
    rows.push_back({argument.name, argument.meaning});
  print(fmt::format("\n{}", format_table({{"LAUNCH ARGUMENT"},
                                          {.title = "MEANING", .may_wrap = true}},
                                         rows, terminal)));
  print(terminal.fitted(fmt::format(
      "\nentry points: {}\ntargets: {}\n`kiln warm --all` builds {} variants, e.g. "
      "{}\n",
      fmt::join(kernel.entry_points(), ", "), fmt::join(target_texts(kernel), ", "),
      kernel.default_set().size(),
      request::format_template(kernel.name(), kernel.default_set()[0].values()))));
}

Result<Kernels> select(const render::TemplateCatalog& catalog,
                       const std::string& name) {
  if (name.empty())
    return catalog.kernels();
  Kernels family = KILN_TRY(catalog.family(name));
  if (!family.empty())
    return family;
  return Kernels{KILN_TRY(catalog.find(name))};
}

Result<int> run(Context& context, const TemplatesOptions& options) {
  const auto catalog = KILN_TRY(open_catalog(context.config, options.catalog));
  const Kernels kernels = KILN_TRY(select(catalog, options.name));
  if (context.json) {
    ordered_json list = ordered_json::array();
    for (const auto& kernel : kernels) list.push_back(kernel_json(*kernel));
    print_json({{"templates", list}});
  } else if (kernels.size() == 1) {
    print_details(*kernels[0], context.out);
  } else {
    print_overview(kernels, context.out);
  }
  return 0;
}

}  // namespace

Run add_templates(OptionSet& cli) {
  auto options = std::make_shared<TemplatesOptions>();
  cli.argument("NAME", options->name, "A kernel or a family; all where left out");
  add_catalog_options(cli, options->catalog);
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
