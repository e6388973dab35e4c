#include "device/device_properties.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "device/driver_table.h"
#include "util/try.h"

namespace kiln::device {
namespace {

using Json = nlohmann::ordered_json;

enum class Values : std::uint8_t { kInt32, kInt64, kFlag };

struct Property {
  const char* key;
  std::int64_t DeviceProperties::*member;
  std::optional<CUdevice_attribute> attribute{};  // nullopt: read in another way
  Values values = Values::kInt32;
};

// In cuDNN's own order, after the two sizes.
constexpr Property kProperties[] = {
    {"regsPerBlock", &DeviceProperties::registers_per_block,
     CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
    {"multiProcessorCount", &DeviceProperties::multiprocessors,
     CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
    {"warpSize", &DeviceProperties::warp_size, CU_DEVICE_ATTRIBUTE_WARP_SIZE},
    {"maxSharedMemoryPerBlock", &DeviceProperties::shared_bytes_per_block,
     CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK},
    {"maxSharedMemoryPerBlockOptin", &DeviceProperties::shared_bytes_per_block_optin,
     CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
    {"reservedSharedMemoryPerBlock", &DeviceProperties::reserved_shared_bytes_per_block,
     CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK},
    {"maxRegistersPerSM", &DeviceProperties::registers_per_multiprocessor,
     CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
    {"maxCtasPerSM", &DeviceProperties::blocks_per_multiprocessor,
     CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
    {"maxThreadsPerBlock", &DeviceProperties::threads_per_block,
     CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
    {"maxThreadsPerSM", &DeviceProperties::threads_per_multiprocessor,
     CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
    {"pciDeviceId", &DeviceProperties::pci_device_id,
     CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
    {"isTccDriver", &DeviceProperties::is_tcc_driver, CU_DEVICE_ATTRIBUTE_TCC_DRIVER,
     Values::kFlag},
    {"supportCoopLaunch", &DeviceProperties::supports_cooperative_launch,
     CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, Values::kFlag},
    {"totalGlobalMem", &DeviceProperties::memory_bytes, {}, Values::kInt64},
    {"smClockRateKHz", &DeviceProperties::clock_khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {"memClockRateKHz", &DeviceProperties::memory_clock_khz,
     CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {"l2CacheSize", &DeviceProperties::l2_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
    {"cudaDeviceId", &DeviceProperties::ordinal},
    {"deviceVer", &DeviceProperties::device_version},
    {"driverVer", &DeviceProperties::driver_version},
};

struct Extents {
  const char* key;
  std::array<std::int64_t, 3> DeviceProperties::*member;
  std::array<CUdevice_attribute, 3> attributes;
};

constexpr Extents kExtents[] = {
    {"maxGridSize",
     &DeviceProperties::max_grid_size,
     {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
      CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z}},
    {"maxBlockSize",
     &DeviceProperties::max_block_size,
     {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
      CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z}},
};

constexpr const char* kName = "deviceName";

Result<const Json*> find(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end())
    return refuse("'{}' is missing", key);
  return &*found;
}

Result<std::int64_t> integer(const Json& value, const char* key, Values values) {
  if (values == Values::kFlag && value.is_boolean())
    return value.get<bool>() ? 1 : 0;
  if (!value.is_number_integer())
    return refuse("'{}' is {}, not an integer", key, value.dump());
  const std::int64_t most = values == Values::kFlag ? 1
                            : values == Values::kInt64
                                ? std::numeric_limits<std::int64_t>::max()
                                : std::numeric_limits<std::int32_t>::max();
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    return refuse("'{}' is {}, not from 0 to {}", key, value.dump(), most);
  return value.get<std::int64_t>();
}

Result<std::array<std::int64_t, 3>> three(const Json& value, const char* key) {
  std::array<std::int64_t, 3> read{};
  if (!value.is_array() || value.size() != read.size())
    return refuse("'{}' is {}, not three integers", key, value.dump());
  for (std::size_t i = 0; i < read.size(); ++i)
    read[i] = KILN_TRY(integer(value[i], key, Values::kInt32));
  return read;
}

std::string text_of(const DeviceProperties& properties, int indent) {
  // One that is added does not compile until it is here, and in one of the tables.
  static_assert(std::size(kExtents) + std::size(kProperties) == 22);
  const auto& [p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16,
               p17, p18, p19, p20, p21, p22, name] = properties;
  Json json;
  for (const Extents& each : kExtents) json[each.key] = properties.*each.member;
  for (const Property& each : kProperties) json[each.key] = properties.*each.member;
  json[kName] = name;
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

ComputeCapability DeviceProperties::capability() const {
  return {static_cast<int>(device_version / 100),
          static_cast<int>(device_version % 100 / 10)};
}

std::string DeviceProperties::cudnn_json() const {
  return text_of(*this, -1);
}

std::string DeviceProperties::indented_json() const {
  constexpr int kIndent = 2;
  return text_of(*this, kIndent) + "\n";
}

Result<ComputeCapability> capability_of(std::int64_t device_version) {
  if (device_version < 100 || device_version > 99'990)
    return refuse("'deviceVer' is {}, not 100 * major + 10 * minor", device_version);
  return DeviceProperties{.device_version = device_version, .name = {}}.capability();
}

Result<DeviceProperties> parse_device_properties(std::string_view json) {
  const Json object = Json::parse(json, nullptr, false);
  if (!object.is_object())
    return refuse("not a JSON object");
  DeviceProperties properties;
  for (const Extents& each : kExtents)
    properties.*each.member =
        KILN_TRY(three(*KILN_TRY(find(object, each.key)), each.key));
  for (const Property& each : kProperties)
    properties.*each.member =
        KILN_TRY(integer(*KILN_TRY(find(object, each.key)), each.key, each.values));
  KILN_TRY(capability_of(properties.device_version));
  const Json& name = *KILN_TRY(find(object, kName));
  if (!name.is_string())
    return refuse("'{}' is {}, not a string", kName, name.dump());
  properties.name = name.get<std::string>();
  return properties;
}

Result<DeviceProperties> device_properties(const Driver& driver, int ordinal) {
  const auto devices = KILN_TRY(driver.devices());
  const auto info = std::ranges::find(devices, ordinal, &Device::ordinal);
  if (info == devices.end())
    return refuse("there is no device {}; the driver shows {}", ordinal,
                  devices.size());
  const DriverTable& table = driver.table();
  CUdevice handle = 0;
  KILN_TRY(driver_result(table, table.cuDeviceGet(&handle, ordinal), "cuDeviceGet"));
  const auto ask = [&](CUdevice_attribute attribute,
                       const char* key) -> Result<std::int64_t> {
    int value = 0;
    KILN_TRY(driver_result(table, table.cuDeviceGetAttribute(&value, attribute, handle),
                           "cuDeviceGetAttribute", key));
    return value;
  };
  DeviceProperties properties;
  for (const auto& [key, member, attributes] : kExtents) {
    for (std::size_t i = 0; i < attributes.size(); ++i)
      (properties.*member)[i] = KILN_TRY(ask(attributes[i], key));
  }
  for (const Property& each : kProperties) {
    if (each.attribute)
      properties.*each.member = KILN_TRY(ask(*each.attribute, each.key));
  }
  properties.memory_bytes = static_cast<std::int64_t>(info->memory_bytes);
  properties.ordinal = ordinal;
  properties.device_version =
      100 * info->capability.major + 10 * info->capability.minor;
  properties.driver_version = driver_value(driver.version());
  properties.name = info->name;
  return properties;
}

}  // namespace kiln::device
