#include "tests/support/simulated_driver/settings.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/simulated_driver/faults.h"

namespace kiln::simulated {
namespace {

std::optional<std::string> variable(const char* name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): tests set it before they open the library
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

void complain(std::string_view name, std::string_view value) {
  fmt::print(stderr, "simulated driver: cannot read {}={}\n", name, value);
}

// Leaves `version` alone where there is no such variable.
void read_version(const char* name, int& version, bool& is_broken) {
  const auto value = variable(name);
  if (!value)
    return;
  int number = 0;
  if (parse_number(*value, number) && is_version(number)) {
    version = number;
    return;
  }
  complain(name, *value);
  is_broken = true;
}

}  // namespace

bool is_version(int number) {
  return number >= 1000 && number < 100'000 && number % 10 == 0;
}

std::optional<bool> parse_loading(std::string_view mode) {
  if (mode != "eager" && mode != "lazy")
    return std::nullopt;
  return mode == "eager";
}

std::optional<std::vector<Capability>> parse_devices(std::string_view list) {
  std::vector<Capability> devices;
  for (const std::string_view item : split(list)) {
    const std::size_t dot = item.find('.');
    Capability device;
    if (dot == std::string_view::npos ||
        !parse_number(item.substr(0, dot), device.major) ||
        !parse_number(item.substr(dot + 1), device.minor) || device.major < 1 ||
        device.major > 99 || device.minor < 0 || device.minor > 9)
      return std::nullopt;
    devices.push_back(device);
  }
  return devices;
}

std::optional<std::vector<Capability>> read_devices() {
  constexpr const char* kName = "KILN_SIMULATED_DEVICES";
  const std::string list = variable(kName).value_or("9.0");
  auto devices = parse_devices(list);
  if (!devices)
    complain(kName, list);
  return devices;
}

Settings read_settings(Faults& faults) {
  Settings settings;
  read_version("KILN_SIMULATED_DRIVER_VERSION", settings.driver_version,
               settings.is_broken);
  read_version("KILN_SIMULATED_TOOLKIT_VERSION", settings.toolkit_version,
               settings.is_broken);
  const std::string mode = variable("KILN_SIMULATED_LOADING").value_or("lazy");
  const auto is_eager = parse_loading(mode);
  settings.is_eager = is_eager.value_or(false);
  if (!is_eager) {
    complain("KILN_SIMULATED_LOADING", mode);
    settings.is_broken = true;
  }
  const std::string list = variable("KILN_SIMULATED_FAULTS").value_or("");
  if (!faults.parse(list)) {
    complain("KILN_SIMULATED_FAULTS", list);
    settings.is_broken = true;
  }
  for (const std::string_view name : {"KERNELS", "CHECKS", "MEMORY", "SEED"}) {
    const std::string whole = "KILN_SIMULATED_" + std::string(name);
    const auto value = variable(whole.c_str());
    if (!value || set_computing(settings.computing, name, *value))
      continue;
    complain(whole, *value);
    settings.is_broken = true;
  }
  return settings;
}

}  // namespace kiln::simulated
