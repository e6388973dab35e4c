#include "device/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "device/driver_table.h"
#include "util/read_file.h"
#include "util/try.h"

namespace kiln::device {
namespace {

constexpr std::uint64_t kMaxProfileBytes = 1U << 20U;

struct ProfileAttribute {
  const char* key;
  CUdevice_attribute attribute;
};

// The keys of a profile that are one attribute of the driver's each.
constexpr ProfileAttribute kAttributes[] = {
    {"regsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {"multiProcessorCount", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"warpSize", CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {"maxSharedMemoryPerBlock", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {"maxSharedMemoryPerBlockOptin",
     CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {"reservedSharedMemoryPerBlock",
     CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK},
    {"maxRegistersPerSM", CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {"maxCtasPerSM", CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
    {"maxThreadsPerBlock", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {"maxThreadsPerSM", CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {"pciDeviceId", CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
    {"isTccDriver", CU_DEVICE_ATTRIBUTE_TCC_DRIVER},
    {"supportCoopLaunch", CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH},
    {"smClockRateKHz", CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {"memClockRateKHz", CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {"l2CacheSize", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
};

/// Attributes of one device; remembers the first that the driver refused.
class AttributeReader {
 public:
  AttributeReader(const DriverTable& table, CUdevice device)
      : table_(table), device_(device) {}

  [[nodiscard]] Result<int> read(CUdevice_attribute attribute,
                                 std::string_view name) const {
    int value = 0;
    const CUresult result = table_.cuDeviceGetAttribute(&value, attribute, device_);
    if (result != CUDA_SUCCESS)
      return driver_error(table_, result, "cuDeviceGetAttribute", name);
    return value;
  }

 private:
  const DriverTable& table_;
  CUdevice device_;
};

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

Result<std::string> describe_device(const Driver& driver, int ordinal) {
  const auto devices = KILN_TRY(driver.devices());
  const auto info = std::find_if(devices.begin(), devices.end(),
                                 [&](const Device& d) { return d.ordinal == ordinal; });
  if (info == devices.end()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("there is no device {}; the driver shows {}", ordinal,
                            devices.size()));
  }
  const DriverTable& table = driver.table();
  CUdevice handle = 0;
  if (const CUresult result = table.cuDeviceGet(&handle, ordinal);
      result != CUDA_SUCCESS)
    return driver_error(table, result, "cuDeviceGet");
  const AttributeReader reader(table, handle);
  nlohmann::ordered_json json;
  json["maxGridSize"] = {
      KILN_TRY(reader.read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, "grid x")),
      KILN_TRY(reader.read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, "grid y")),
      KILN_TRY(reader.read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, "grid z"))};
  json["maxBlockSize"] = {
      KILN_TRY(reader.read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, "block x")),
      KILN_TRY(reader.read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, "block y")),
      KILN_TRY(reader.read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, "block z"))};
  for (const auto& [key, attribute] : kAttributes)
    json[key] = KILN_TRY(reader.read(attribute, key));
  json["totalGlobalMem"] = info->memory_bytes;
  json["cudaDeviceId"] = ordinal;
  json["deviceVer"] = 100 * info->capability.major + 10 * info->capability.minor;
  json["driverVer"] = 1000 * driver.version().major + 10 * driver.version().minor;
  json["deviceName"] = info->name;
  constexpr int kIndent = 2;
  return json.dump(kIndent, ' ', false,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace kiln::device
