// kiln inspect: which device code binaries hold, and on which devices it runs.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/architectures.h"
#include "tools/inspect/inspected.h"
#include "tools/verbs.h"
#include "util/try.h"
#include "util/units.h"

namespace kiln::tools {
namespace {

struct InspectOptions {
  std::vector<std::string> paths;
  std::vector<std::string> environments;
  std::vector<std::string> pids;
  ArchitectureOptions archs;
  std::string driver;
};

void add_once(std::vector<InspectedDevice>& devices, const InspectedDevice& device) {
  if (std::find(devices.begin(), devices.end(), device) == devices.end())
    devices.push_back(device);
}

/// Errors: kInvalidArgument (no architecture of a device, or none is here); those of
/// inspected_devices().
Result<std::vector<InspectedDevice>> selected_devices(const Context& context,
                                                      const InspectOptions& options) {
  const auto driver = KILN_TRY(parse_driver_option(options.driver));
  if (!is_given(options.archs)) {
    const auto here = KILN_TRY(inspected_devices(context.config));
    if (here.empty())
      print_note(
          "no device is present here: name the architectures to run on by --arch "
          "8.0,9.0\n");
    return here;
  }
  std::vector<InspectedDevice> devices;
  for (const std::string& list : options.archs.lists) {
    const auto parsed = KILN_TRY(device::parse_target_list(list));
    for (const device::Target target : parsed.targets) {
      if (target.kind != device::ImageKind::kCubin)
        return refuse("--arch: {} is not the architecture of a device, such as 9.0",
                      arch_name(target));
      add_once(devices, {target.architecture.capability, driver});
    }
    if (!parsed.native)
      continue;
    const auto here = KILN_TRY(inspected_devices(context.config));
    if (here.empty())
      return refuse("--arch native: no NVIDIA device is present here");
    for (const InspectedDevice& device : here) add_once(devices, device);
  }
  return devices;
}

Result<void> check(const InspectOptions& options) {
  if (options.paths.empty() && options.environments.empty() && options.pids.empty())
    return refuse("name a file or a folder, --python DIR or --pid P");
  if (!options.driver.empty() && !is_given(options.archs))
    return refuse("--driver goes with --arch: a device here has a driver of its own");
  return {};
}

/// Calls `take` with all that the options name. Errors: kInvalidArgument, kNotFound,
/// kUnavailable.
Result<void> inspect_all(const InspectOptions& options, const TakeInspected& take) {
  for (const std::string& path : options.paths) KILN_TRY(inspect_path(path, take));
  for (const std::string& root : options.environments)
    KILN_TRY(inspect_environment(root, take));
  for (const std::string& text : options.pids) {
    const auto pid =
        KILN_TRY(parse_number("--pid", text, {1, std::numeric_limits<pid_t>::max()}));
    KILN_TRY(inspect_process(static_cast<pid_t>(pid), take));
  }
  return {};
}

std::string images_table(const binaries::DeviceCode& code, const Terminal& out) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [image, totals] : code.images)
    rows.push_back({to_string(image.target.architecture),
                    fmt::format("{}{}", binaries::kind_name(image.target.kind),
                                image.is_relocatable ? " (to be linked)" : ""),
                    std::to_string(totals.count), format_size(totals.bytes),
                    std::string(word_of(image.compression)),
                    image.toolkit ? to_string(*image.toolkit) : "unknown"});
  return format_table({{"ARCH"},
                       {"KIND"},
                       {"IMAGES", Align::kRight},
                       {"SIZE", Align::kRight},
                       {"COMPRESSION"},
                       {"TOOLKIT"}},
                      rows, out);
}

void print_file(const Terminal& out, const InspectedFile& file,
                const std::vector<InspectedDevice>& devices,
                const std::vector<binaries::Verdict>& verdicts) {
  constexpr std::size_t kIndent = 2;
  if (!file.code) {
    print_error(fmt::format("kiln: {}\n", printable_lines(file.code.error().message)));
    return;
  }
  std::string title = file.path;
  if (!file.distribution.empty())
    title += fmt::format(" ({})", file.distribution);
  if (const auto machine = binaries::machine_name(file.code->machine);
      !machine.empty() && machine != binaries::own_machine())
    title += fmt::format(", for {}", machine);
  if (!file.has_code()) {
    print(fmt::format("{}: no device code\n", printable_lines(title)));
    return;
  }
  print(fmt::format("{}\n{}", out.styled(printable_lines(title), Style::kBold),
                    images_table(*file.code, out)));
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const binaries::Verdict& verdict = verdicts[i];
    print(out.fitted(
        fmt::format("{} {}: {}\n", to_string(devices[i].capability),
                    out.styled(word_of(verdict.answer), style_of(verdict.answer)),
                    verdict.reason),
        kIndent));
    if (!verdict.remedy.empty())
      print(out.fitted(fmt::format("  -> {}\n", verdict.remedy), kIndent));
  }
}

Result<int> run(Context& context, const InspectOptions& options) {
  KILN_TRY(check(options));
  const auto devices = KILN_TRY(selected_devices(context, options));
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  int status = kAllDone;
  KILN_TRY(inspect_all(options, [&](const InspectedFile& file) {
    const auto verdicts = verdicts_of(file, devices);
    const bool fails = std::ranges::any_of(verdicts, [](const auto& verdict) {
      return verdict.answer == binaries::Answer::kFails;
    });
    if (!file.code || fails)
      status = kSomeFailed;
    if (context.json)
      files.push_back(inspected_json(file, devices, verdicts));
    else
      print_file(context.out, file, devices, verdicts);
  }));
  if (context.json)
    print_json({{"files", files}});
  return status;
}

}  // namespace

Run add_inspect(OptionSet& cli) {
  auto options = std::make_shared<InspectOptions>();
  cli.argument("PATH", options->paths,
               "Libraries, programs, objects, archives, cubins, fat binaries, PTX, "
               "wheels, or folders of them");
  cli.option("--python", options->environments, "DIR",
             "The libraries of this environment of Python; may be repeated");
  cli.option("--pid", options->pids, "P",
             "The programs and libraries that this process runs; may be repeated");
  cli.option("--arch", options->archs.lists, "LIST",
             "Say whether the files run on devices of these architectures: 9.0, sm_90 "
             "or native; with commas; may be repeated (default: the devices present)");
  cli.option(
      "--driver", options->driver, "VERSION",
      "CUDA version of the driver of those devices, as nvidia-smi shows it: 12.4");
  cli.footer(
      "Nothing of the files is run. Exit status: 0; 1 if a file has another format, "
      "or\n"
      "fails on one of the devices; 2 if a file or process does not exist or cannot "
      "be\n"
      "read; 3 if a process is another user's.\n");
  return [options](Context& context) { return run(context, *options); };
}

}  // namespace kiln::tools
