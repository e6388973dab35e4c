#include "device/profile.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "util/read_file.h"
#include "util/try.h"

namespace kiln::device {
namespace {

constexpr std::uint64_t kMaxProfileBytes = 1U << 20U;

}  // namespace

Result<DeviceProfile> read_profile(const std::filesystem::path& path) {
  const std::string text = KILN_TRY(read_text_file(path, kMaxProfileBytes));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto wrong = [&](std::string_view what) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is no device profile: {}; `kiln doctor --profile FILE` "
                            "writes one on a machine with the device",
                            path.native(), what));
  };
  if (!json.is_object())
    return wrong("not a JSON object");
  const auto version = json.find("deviceVer");
  const auto name = json.find("deviceName");
  if (version == json.end() || !version->is_number_integer())
    return wrong("the integer 'deviceVer' (900 for compute capability 9.0) is missing");
  if (name == json.end() || !name->is_string())
    return wrong("the string 'deviceName' is missing");
  const auto value = version->get<std::int64_t>();
  if (value < 100 || value > 99'990)
    return wrong(fmt::format("'deviceVer' is {}, not 100 * major + 10 * minor", value));
  return DeviceProfile{
      name->get<std::string>(),
      {static_cast<int>(value / 100), static_cast<int>(value % 100 / 10)}};
}

}  // namespace kiln::device
