// cuInit and cuDevice*, but for the primary contexts.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/support/simulated_driver/abi_functions.h"

namespace {

// "Kilnsim", the capability and the ordinal: different for every device, the same in
// every run.
CUuuid uuid_of(const Device& device) {
  CUuuid uuid{};
  constexpr std::string_view kName = "Kilnsim";
  std::copy(kName.begin(), kName.end(), uuid.bytes);
  uuid.bytes[13] = static_cast<char>(device.model.capability.major);
  uuid.bytes[14] = static_cast<char>(device.model.capability.minor);
  uuid.bytes[15] = static_cast<char>(device.ordinal);
  return uuid;
}

CUresult get_uuid(const char* symbol, CUuuid* uuid, CUdevice ordinal) {
  return with_device(symbol, ordinal, [&](Simulator&, const Device& device) {
    return answer(uuid, uuid_of(device));
  });
}

// `text` into a caller's buffer of `room` bytes, cut off where it does not fit.
CUresult copy_text(const std::string& text, char* out, int room) {
  if (out == nullptr || room <= 0)
    return CUDA_ERROR_INVALID_VALUE;
  const std::size_t length = std::min(text.size(), static_cast<std::size_t>(room) - 1);
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuInit(unsigned flags) {
  return enter(__func__, Needs::kNothing, [&](Simulator& simulator) {
    return flags == 0 ? simulator.start() : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDriverGetVersion(int* version) {
  return enter(__func__, Needs::kNothing, [&](Simulator& simulator) {
    return answer(version, simulator.settings.driver_version);
  });
}

CUresult cuDeviceGetCount(int* count) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    return answer(count, static_cast<int>(simulator.devices.size()));
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_device(__func__, ordinal, [&](Simulator&, const Device&) {
    return answer(device, ordinal);
  });
}

CUresult cuDeviceGetName(char* name, int room, CUdevice ordinal) {
  return with_device(__func__, ordinal, [&](Simulator&, const Device& device) {
    const Capability capability = device.model.capability;
    return copy_text(fmt::format("Simulated {}.{}", capability.major, capability.minor),
                     name, room);
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) {
  return get_uuid(__func__, uuid, ordinal);
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  return get_uuid(__func__, uuid, ordinal);
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice ordinal) {
  return with_device(__func__, ordinal, [&](Simulator&, const Device& device) {
    return answer(bytes, device.model.memory_bytes);
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice ordinal) {
  return with_device(__func__, ordinal, [&](Simulator&, const Device& device) {
    const auto found = kiln::simulated::attribute(device.model, ordinal, which);
    return found ? answer(value, *found) : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice from, CUdevice to) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    const Device* const first = simulator.device(from);
    const Device* const second = simulator.device(to);
    if (first == nullptr || second == nullptr)
      return CUDA_ERROR_INVALID_DEVICE;
    const bool are_alike = first->model.capability == second->model.capability;
    return answer(can, from != to && are_alike ? 1 : 0);
  });
}

CUresult cuDeviceGetPCIBusId(char* id, int room, CUdevice ordinal) {
  return with_device(__func__, ordinal, [&](Simulator&, const Device&) {
    return copy_text(kiln::simulated::pci_bus_id(ordinal), id, room);
  });
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  return enter(__func__, Needs::kDriver, [&](Simulator& simulator) {
    if (device == nullptr || id == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    for (const Device& each : simulator.devices) {
      if (kiln::simulated::pci_bus_id(each.ordinal) == id) {
        *device = each.ordinal;
        return CUDA_SUCCESS;
      }
    }
    return CUDA_ERROR_INVALID_DEVICE;
  });
}
