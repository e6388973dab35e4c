// kiln doctor: what is found on this machine, and what is wrong.

#include "tools/doctor/doctor.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "build/dead_mounts.h"
#include "device/profile.h"
#include "tools/output/file_output.h"
#include "tools/verbs.h"
#include "util/try.h"

namespace kiln::tools {
namespace {

struct DoctorOptions {
  std::string profile;
  std::string device = "0";
  std::vector<std::string> compare;
  std::vector<std::string> command;
};

void print_checks(const Diagnosis& diagnosis, const Terminal& out) {
  constexpr std::size_t kIndent = 6;  // below the name of the check
  for (const Check& check : diagnosis.checks) {
    const std::string word = fmt::format("{:<4}", to_string(check.verdict));
    print(out.fitted(
        fmt::format("{}  {}: {}\n", out.styled(word, style_of(check.verdict)),
                    check.name, check.detail),
        kIndent));
    if (check.verdict != CheckVerdict::kOk && !check.remedy.empty())
      print(out.fitted(
          fmt::format("      {}\n", out.styled("-> " + check.remedy, Style::kDim)),
          kIndent));
  }
}

Result<void> write_profile(BuildService& service, const DoctorOptions& options) {
  constexpr std::uint64_t kMostDevices = 1024;
  KILN_TRY(check_output_path("--profile", options.profile));
  const auto device = static_cast<int>(
      KILN_TRY(parse_number("--device", options.device, {0, kMostDevices})));
  const auto driver = KILN_TRY(service.toolchains().driver());
  if (!driver) {
    return fail(ErrorCode::kUnavailable,
                "a profile describes a device, and there is no NVIDIA driver here");
  }
  const std::string text = KILN_TRY(device::describe_device(*driver, device));
  return write_output_file(options.profile, as_bytes(text));
}

Result<int> run(Context& context, const OptionSet& cli, const DoctorOptions& options) {
  if (cli.is_given("--device") && options.profile.empty())
    return refuse("--device goes with --profile FILE");
  // The search for libraries cannot leave one out: it would hang.
  if (const auto dead = dead_search_places(context.config); !dead.empty())
    return fail(
        ErrorCode::kUnavailable,
        "no library can be looked for: {}; take it out of that setting, or unmount it",
        fmt::join(dead, "; "));
  const auto service =
      KILN_TRY(BuildService::open(context.config, {.stop = context.stop->token(),
                                                   .make_root = false,
                                                   .asks_remotes = false,
                                                   .warns_when_off = false}));
  if (!options.profile.empty())
    KILN_TRY(write_profile(*service, options));
  Diagnosis diagnosis = diagnose(context, *service);
  check_settings(cli.given_settings(), diagnosis);
  if (!options.command.empty())
    check_program(options.command, diagnosis);
  for (const std::string& path : options.compare) {
    for (Check& check : KILN_TRY(compare_with(diagnosis_json(diagnosis), path)))
      diagnosis.checks.push_back(std::move(check));
  }
  const auto json = diagnosis_json(diagnosis);
  if (context.json)
    print_json(json);
  else
    print_checks(diagnosis, context.out);
  return json["ok"].get<bool>() ? kAllDone : kSomeFailed;
}

}  // namespace

Run add_doctor(OptionSet& cli) {
  auto options = std::make_shared<DoctorOptions>();
  cli.option("--profile", options->profile, "FILE",
             "Write a profile of a device here to FILE, for `warm --profile`");
  cli.option("--device", options->device, "ORDINAL",
             "The device that the profile describes");
  cli.option("--compare", options->compare, "FILE",
             "Compare with another node's `kiln doctor --json`; may be repeated");
  cli.argument(
      "PROGRAM", options->command,
      "Run this program, behind --, and tell which NVRTC `kiln run` would catch");
  cli.footer(
      "Exit status: 0 unless a check says fail, then 1; 3 if --cache-dir does not "
      "exist, or if templates, keys or libraries are on a mount that gives no "
      "answer.\n"
      "\n"
      "Examples:\n"
      "  kiln doctor --json > node1.json           for a report\n"
      "  kiln doctor --compare node1.json          on another node: the differences\n"
      "  kiln doctor -- python train.py            which NVRTC the program uses\n");
  return [options, cli](Context& context) { return run(context, cli, *options); };
}

}  // namespace kiln::tools
