// What the library's own operations need of a service besides its kernels.

#pragma once

#include "device/devices.h"
#include "kiln/service.h"
#include "library/attention_decisions.h"
#include "library/kernel_memory.h"
#include "util/striped.h"

namespace kiln {

struct ServiceParts {
  [[nodiscard]] static AttentionDecisions& attention_of(Service& service);
  [[nodiscard]] static Devices& devices_of(Service& service);
  [[nodiscard]] static KernelMemory& kernels_of(Service& service);
  /// Statistics::memory_hits.
  [[nodiscard]] static StripedCounter& memory_hits_of(Service& service);
};

}  // namespace kiln
