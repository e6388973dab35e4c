#include "device/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "util/nearest.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::device {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxProfileBytes = 1U << 20U;

Result<std::string> text_of(const fs::path& what) {
  const std::string& name = what.native();
  std::error_code unknown;
  if (name.find('/') != std::string::npos || name.ends_with(".json") ||
      fs::exists(what, unknown))
    return read_text_file(what, kMaxProfileBytes);
  std::vector<std::string> names;
  for (const PublishedProfile& each : published_profiles()) {
    if (each.name == name)
      return std::string(each.text);
    names.emplace_back(each.name);
  }
  return fail(ErrorCode::kNotFound, "no profile '{}' among {}, and no such file{}",
              name, fmt::join(names, ", "), did_you_mean(name, names));
}

tl::unexpected<Error> wrong(const fs::path& what, std::string_view why) {
  return refuse(
      "{} is no device profile: {}; `kiln doctor --profile FILE` writes one on a "
      "machine with the device",
      what.native(), why);
}

}  // namespace

Result<DeviceProfile> read_profile(const fs::path& what) {
  const std::string text = KILN_TRY(text_of(what));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object())
    return wrong(what, "not a JSON object");
  const auto version = json.find("deviceVer");
  const auto name = json.find("deviceName");
  if (version == json.end() || !version->is_number_integer())
    return wrong(what,
                 "the integer 'deviceVer' (900 for compute capability 9.0) is missing");
  if (name == json.end() || !name->is_string())
    return wrong(what, "the string 'deviceName' is missing");
  const auto capability = capability_of(version->get<std::int64_t>());
  if (!capability)
    return wrong(what, capability.error().message);
  return DeviceProfile{name->get<std::string>(), *capability};
}

Result<DeviceProperties> read_device_properties(const fs::path& what) {
  auto properties = parse_device_properties(KILN_TRY(text_of(what)));
  if (!properties)
    return wrong(what, properties.error().message);
  return properties;
}

Result<std::string> describe_device(const Driver& driver, int ordinal) {
  return KILN_TRY(device_properties(driver, ordinal)).indented_json();
}

}  // namespace kiln::device
