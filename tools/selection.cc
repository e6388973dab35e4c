#include "tools/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ops/preset.h"
#include "request/manifest.h"
#include "request/selection.h"
#include "tools/context.h"
#include "tools/presets.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

/// What was selected.
struct WantedKernels {
  request::Selection selection;
  std::vector<request::ManifestEntry> lines;
  std::vector<Error> bad_lines;
  std::vector<ops::Preset> presets;
};

/// Checks a manifest's line as far as is possible before anything is built. `asked`:
/// what --arch and --profile name.
Result<void> check_line(BuildService& service, const request::ManifestEntry& line,
                        const std::vector<device::BuildFor>& asked) {
  const auto prepared = KILN_TRY(service.prepare(line.request));
  if (const auto& named = line.request.source().toolchain; !named.empty())
    KILN_TRY(service.toolchains().named(named));
  if (!line.architecture)
    return {};
  if (asked.empty()) {
    KILN_TRY(service.toolchain(prepared, *line.architecture));
    return {};
  }
  std::vector<std::string> names;
  for (const device::BuildFor& each : asked) names.push_back(to_string(each));
  const std::string own = arch_name(*line.architecture);
  if (std::ranges::find(names, own) == names.end())
    return refuse(
        "this line has \"arch\": \"{}\", and {} is asked for; leave one of the two out",
        own, fmt::join(names, ", "));
  return {};
}

/// `error` of a request that is line `place` of a manifest.
Error at_line(const std::string& place, const Request& request, Error error) {
  const std::string name = request.name() + ": ";  // has the place of a source already
  if (!request.is_template() && error.message.starts_with(name))
    error.message.erase(0, name.size());
  error.message.insert(0, place + ": ");
  return error;
}

/// Errors: those of reading the file; kInvalidArgument if it has no request.
Result<void> add_manifest(BuildService& service, const std::string& path,
                          const std::vector<device::BuildFor>& asked,
                          WantedKernels& wanted) {
  auto lines = KILN_TRY(from_input(request::read_manifest(path)));
  if (lines.empty())
    return refuse("{}: the file has no request", path);
  for (request::ManifestLine& line : lines) {
    if (!line) {
      wanted.bad_lines.push_back(std::move(line).error());
      continue;
    }
    if (auto checked = check_line(service, *line, asked); !checked)
      wanted.bad_lines.push_back(at_line(fmt::format("{}:{}", path, line->line),
                                         line->request, std::move(checked).error()));
    else
      wanted.lines.push_back(*std::move(line));
  }
  return {};
}

/// All bad lines as one error, one a line: of the environment if each is, else of the
/// input.
Error all_of(const std::vector<Error>& bad_lines) {
  const bool is_input = std::ranges::any_of(bad_lines, [](const Error& error) {
    return error.code != ErrorCode::kUnavailable;
  });
  Error all{is_input ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable, ""};
  if (bad_lines.size() > 1)
    all.message = fmt::format(
        "{} lines are wrong, and nothing is built (--skip-bad builds the rest):",
        bad_lines.size());
  for (const Error& error : bad_lines)
    all.message.append(all.message.empty() ? "" : "\n").append(error.message);
  return all;
}

Result<WantedKernels> select(BuildService& service, const SelectionOptions& options) {
  WantedKernels wanted{request::Selection(service.catalog()), {}, {}, {}};
  if (options.all)
    KILN_TRY(wanted.selection.add_all());
  if (options.quick)
    KILN_TRY(wanted.selection.add_quick());
  for (const std::string& text : options.templates)
    KILN_TRY(wanted.selection.add_template(text));
  std::vector<device::BuildFor> asked;
  if (is_given(options.architectures) && !options.manifests.empty())
    asked = KILN_TRY(named_targets(service, options.architectures));
  for (const std::string& path : options.manifests)
    KILN_TRY(add_manifest(service, path, asked, wanted));
  if (!wanted.bad_lines.empty() && !options.skip_bad)
    return tl::unexpected(all_of(wanted.bad_lines));
  for (const std::string& name : options.presets)
    wanted.presets.push_back(KILN_TRY(from_input(ops::find_preset(name))));
  if (!options.all && !options.quick && options.templates.empty() &&
      options.manifests.empty() && options.presets.empty()) {
    return refuse(
        "name the kernels: --all, --quick, --template NAME[:p=v,...], "
        "--preset NAME or --manifest FILE");
  }
  return wanted;
}

/// True if a request has no architecture of its own, as only manifest lines can have.
bool needs_architectures(const WantedKernels& wanted) {
  if (!wanted.selection.requests().empty() || !wanted.presets.empty())
    return true;
  return std::ranges::any_of(wanted.lines, [](const request::ManifestEntry& line) {
    return !line.architecture;
  });
}

/// What of each preset's model is built and what is not, so that nobody has to guess.
Result<void> add_attention(PlanService& plans, const Config& config,
                           const WantedKernels& wanted, const SelectionOptions& options,
                           BuildReport& report) {
  for (const ops::Preset& preset : wanted.presets) {
    if (options.no_attention && preset.attention)
      print_note(fmt::format("{}: without attention\n", preset.name));
    else
      KILN_TRY(add_preset_plans(plans, config, preset, options.architectures, report));
    if (!preset.missing.empty())
      print_note(fmt::format("{}: not the whole model: {}\n", preset.name,
                             printable_lines(preset.missing)));
  }
  return {};
}

std::string preset_names() {
  std::vector<std::string_view> names;
  for (const ops::BuiltInPreset& preset : ops::built_in_presets())
    names.push_back(preset.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

void add_selection_options(OptionSet& cli, SelectionOptions& options) {
  cli.flag("--all", options.all, "The default set of every kernel");
  cli.flag("--quick", options.quick,
           "A small part of the default set, to try things out");
  cli.option("--template", options.templates, "NAME[:p=v,...]",
             "A kernel or family, NAME or NAME:p=v,...; a parameter left out takes "
             "every value of the default set; may be repeated");
  cli.option(
      "--manifest", options.manifests, "FILE",
      "Requests as JSON Lines, contents inline; --arch must name the architecture "
      "of a line that has its own; may be repeated");
  cli.flag("--skip-bad", options.skip_bad,
           "Leave wrong lines of a manifest out, and go on with the rest; exit 1");
  cli.option(
      "--preset", options.presets, "NAME|FILE",
      fmt::format(
          "The kernels that train a model: {}; or a file of your own, NAME.toml; with "
          "--profile or a device present also cuDNN's plans; may be repeated",
          preset_names()));
  cli.flag("--no-attention", options.no_attention,
           "Leave attention out of --preset: Kiln's kernels, and cuDNN's plans");
  add_arch_option(cli, options.architectures);
  add_profile_option(cli, options.architectures);
  add_driver_option(cli, options.driver);
  add_catalog_options(cli, options.catalog);
}

Result<BuildReport> list_items(const Context& context, BuildService& service,
                               PlanService& plans, const SelectionOptions& options) {
  const WantedKernels wanted = KILN_TRY(select(service, options));
  std::vector<device::BuildFor> architectures;
  if (is_given(options.architectures) || needs_architectures(wanted))
    architectures = KILN_TRY(select_architectures(service, options.architectures));
  BuildReport report;
  for (const request::TemplateRequest& request : wanted.selection.requests()) {
    add_items(service, Request(request.kernel->name(), request.params.values()),
              architectures, report);
  }
  for (const device::BuildFor& build_for : architectures)
    KILN_TRY(add_preset_kernels(service, wanted.presets, !options.no_attention,
                                build_for, report));
  KILN_TRY(add_attention(plans, service.config(), wanted, options, report));
  for (const request::ManifestEntry& line : wanted.lines) {
    add_items(service, line.request,
              line.architecture ? std::vector<device::BuildFor>{*line.architecture}
                                : architectures,
              report, context.stop->token());
  }
  if (options.skip_bad)
    report.bad_lines = wanted.bad_lines.size();
  for (const Error& error : wanted.bad_lines)
    print_error(fmt::format("{} left out: {}\n",
                            context.err.styled("kiln:", Style::kYellow),
                            printable_lines(error.message)));
  return report;
}

}  // namespace kiln::tools
