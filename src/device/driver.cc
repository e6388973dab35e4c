#include "device/driver.h"

#include <fmt/format.h>

#include <array>
#include <memory>

#include "device/driver_table.h"
#include "util/bytes.h"
#include "util/open_library.h"
#include "util/try.h"

#define KILN_TEXT_OF(name) #name
#define KILN_SYMBOL_OF(name) KILN_TEXT_OF(name)  // expands cuda.h's own macros first

namespace kiln::device {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> unusable(const fs::path& path, std::string_view why) {
  return fail(ErrorCode::kUnavailable, "the CUDA driver {} cannot be used: {}",
              path.native(), why);
}

Result<std::unique_ptr<DriverTable>> load_table(const fs::path& path) {
  const auto library = open_library(path);
  if (!library)
    return unusable(path, library.error().message);
  auto table = std::make_unique<DriverTable>();
  table->path = path;
#define KILN_LOOK_UP(function) \
  look_up(*library, KILN_SYMBOL_OF(function), table->function);
#define KILN_REQUIRE(function)    \
  if (table->function == nullptr) \
    return unusable(path, "it lacks " KILN_SYMBOL_OF(function));
  KILN_REQUIRED_DRIVER_FUNCTIONS(KILN_LOOK_UP)
  KILN_OPTIONAL_DRIVER_FUNCTIONS(KILN_LOOK_UP)
  KILN_REQUIRED_DRIVER_FUNCTIONS(KILN_REQUIRE)
#undef KILN_LOOK_UP
#undef KILN_REQUIRE
  int version = 0;
  if (const CUresult result = table->cuDriverGetVersion(&version);
      result != CUDA_SUCCESS)
    return unusable(path,
                    driver_error(*table, result, "cuDriverGetVersion").value().message);
  table->version = cuda_version_of_driver(version);
  return table;
}

// `table` is null if there is no driver.
struct Opened {
  const DriverTable* table = nullptr;
  std::string found_in;
};

Result<Opened> open_first(const std::vector<LibraryCandidate>& candidates) {
  std::optional<Error> first_error;
  for (const LibraryCandidate& candidate : candidates) {
    auto table = LibraryTables<DriverTable>::get(
        candidate.path, [&] { return load_table(candidate.path); });
    if (table)
      return Opened{*table, candidate.found_in};
    if (!first_error)
      first_error = std::move(table).error();
  }
  if (first_error)
    return tl::unexpected(*std::move(first_error));
  return Opened{};
}

std::string uuid_of(const DriverTable& table, CUdevice device) {
  CUuuid uuid{};
  if (table.cuDeviceGetUuid == nullptr ||
      table.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS)
    return "";  // a label for people; nothing depends on it
  const std::string hex = to_hex(as_bytes({uuid.bytes, sizeof(uuid.bytes)}));
  const std::string_view view = hex;
  return fmt::format("GPU-{}-{}-{}-{}-{}", view.substr(0, 8), view.substr(8, 4),
                     view.substr(12, 4), view.substr(16, 4), view.substr(20));
}

Result<Device> describe(const DriverTable& table, int ordinal) {
  const std::string on = fmt::format("device {}", ordinal);
  CUdevice device = 0;
  const auto check = [&](CUresult result, std::string_view call) {
    return driver_result(table, result, call, on);
  };
  KILN_TRY(check(table.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
  std::array<char, 256> name{};
  KILN_TRY(check(
      table.cuDeviceGetName(name.data(), static_cast<int>(name.size() - 1), device),
      "cuDeviceGetName"));
  std::size_t memory_bytes = 0;
  KILN_TRY(check(table.cuDeviceTotalMem(&memory_bytes, device), "cuDeviceTotalMem"));

  const auto ask = [&](CUdevice_attribute which) {
    return device_attribute(table, device, which);
  };
  Device info;
  info.ordinal = ordinal;
  info.name = name.data();
  info.memory_bytes = memory_bytes;
  info.uuid = uuid_of(table, device);
  info.capability.major = KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  info.capability.minor = KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  info.multiprocessors = KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  info.shared_bytes_per_block =
      KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  info.pci_id = fmt::format("{:04x}:{:02x}:{:02x}.0",
                            KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)),
                            KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)),
                            KILN_TRY(ask(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)));
  return info;
}

}  // namespace

Result<int> device_attribute(const DriverTable& table, CUdevice device,
                             CUdevice_attribute which) {
  int value = 0;
  KILN_TRY(driver_result(
      table, table.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute",
      fmt::format("attribute {} of device {}", static_cast<int>(which), device)));
  return value;
}

Result<std::optional<Driver>> Driver::open(const fs::path& explicit_path,
                                           const LibraryPlaces& places,
                                           std::string_view set_by) {
  // With an explicit path, nothing else is searched.
  const auto candidates = KILN_TRY(
      find_libraries({std::string(kDriverName), explicit_path, std::string(set_by)},
                     explicit_path.empty() ? places : LibraryPlaces{}));
  Opened opened = KILN_TRY(open_first(candidates));
  if (opened.table == nullptr)
    return std::nullopt;
  return Driver(opened.table, std::move(opened.found_in));
}

const fs::path& Driver::path() const {
  return table_->path;
}

CudaVersion Driver::version() const {
  return table_->version;
}

Result<std::vector<Device>> Driver::devices() const {
  std::vector<Device> devices;
  const CUresult started = table_->cuInit(0);
  if (started == CUDA_ERROR_NO_DEVICE)
    return devices;
  KILN_TRY(driver_result(*table_, started, "cuInit"));
  int count = 0;
  KILN_TRY(
      driver_result(*table_, table_->cuDeviceGetCount(&count), "cuDeviceGetCount"));
  for (int ordinal = 0; ordinal < count; ++ordinal)
    devices.push_back(KILN_TRY(describe(*table_, ordinal)));
  return devices;
}

Result<bool> Driver::can_access_peer(int from, int to) const {
  std::array<CUdevice, 2> devices{};
  const std::array<int, 2> ordinals{from, to};
  for (std::size_t i = 0; i < ordinals.size(); ++i)
    KILN_TRY(driver_result(*table_, table_->cuDeviceGet(&devices[i], ordinals[i]),
                           "cuDeviceGet", fmt::format("device {}", ordinals[i])));
  int can = 0;
  KILN_TRY(driver_result(
      *table_, table_->cuDeviceCanAccessPeer(&can, devices[0], devices[1]),
      "cuDeviceCanAccessPeer", fmt::format("devices {} and {}", from, to)));
  return can != 0;
}

}  // namespace kiln::device
