// The checks of `kiln doctor`: what is found on this machine, a verdict on each, and
// what to do where it is not well.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "build_service.h"
#include "tools/context.h"

namespace kiln::tools {

enum class CheckVerdict { kOk, kWarn, kFail };

/// "ok", "warn", "fail".
[[nodiscard]] std::string_view to_string(CheckVerdict verdict);

struct Check {
  std::string name;
  CheckVerdict verdict = CheckVerdict::kOk;
  std::string detail;
  std::string remedy;  // empty where there is nothing to do
};

struct Diagnosis {
  std::vector<Check> checks;
  std::vector<Device> devices;
  std::vector<device::Toolchain> toolchains;
};

/// Looks at everything; nothing here fails, it becomes a check. The lock probe and the
/// trial compile have time limits.
[[nodiscard]] Diagnosis diagnose(Context& context, BuildService& service);

// Its parts, in the order of the report.
void check_driver(BuildService& service, Diagnosis& diagnosis);
void check_toolchains(BuildService& service, Diagnosis& diagnosis);
void check_compile(Context& context, BuildService& service, Diagnosis& diagnosis);
void check_cudnn(BuildService& service, Diagnosis& diagnosis);
void check_cache(BuildService& service, Diagnosis& diagnosis);

/// `{"ok","checks","devices","toolchains"}`.
[[nodiscard]] nlohmann::ordered_json diagnosis_json(const Diagnosis& diagnosis);

/// One check for each thing in which another node's `doctor --json` differs from this
/// one: driver, toolchains, devices, Kiln itself. Errors: kNotFound, kInvalidArgument.
[[nodiscard]] Result<std::vector<Check>> compare_with(
    const nlohmann::ordered_json& here, const std::string& path);

}  // namespace kiln::tools
