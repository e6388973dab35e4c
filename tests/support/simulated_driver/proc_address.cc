// cuGetProcAddress: the newest version of a function that both the caller's CUDA and
// this driver know.

#include <algorithm>

#include "tests/support/simulated_driver/abi_functions.h"
#include "tests/support/simulated_driver/absent.h"
#include "tests/support/simulated_driver/functions.h"
#include "tests/support/simulated_driver/not_simulated.h"

using kiln::simulated::DriverFunction;

namespace {

CUresult find(const Simulator& simulator, std::string_view name, int version,
              void** address, CUdriverProcAddressQueryResult& status) {
  const int newest = std::min(version, simulator.settings.driver_version);
  *address = nullptr;
  status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (kiln::simulated::is_removed(name))
    return CUDA_ERROR_NOT_FOUND;
  int best = 0;
  for (const DriverFunction& each : kiln::simulated::driver_functions()) {
    if (each.name != name)
      continue;
    if (status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
      status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (each.since > newest || each.since < best)
      continue;
    best = each.since;
    *address = each.address;
    status = CU_GET_PROC_ADDRESS_SUCCESS;
  }
  return *address == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

}  // namespace

int kiln::simulated::refuse(const char* symbol) {
  return enter(symbol, Needs::kDriver,
               [](Simulator&) { return CUDA_ERROR_NOT_SUPPORTED; });
}

CUresult cuGetProcAddress(const char* name, void** address, int version,
                          cuuint64_t /*flags*/) {
  return enter(__func__, Needs::kNothing, [&](Simulator& simulator) {
    if (name == nullptr || address == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult ignored{};
    return find(simulator, name, version, address, ignored);
  });
}

CUresult cuGetProcAddress_v2(const char* name, void** address, int version,
                             cuuint64_t /*flags*/,
                             CUdriverProcAddressQueryResult* status) {
  return enter(__func__, Needs::kNothing, [&](Simulator& simulator) {
    if (name == nullptr || address == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult result{};
    const CUresult found = find(simulator, name, version, address, result);
    if (status != nullptr)
      *status = result;
    return found;
  });
}
