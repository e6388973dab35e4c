// What the library's own operations need of a service beside its kernels.

#pragma once

#include "kiln/service.h"
#include "library/attention_calls.h"

namespace kiln {

struct ServiceParts {
  [[nodiscard]] static AttentionCalls& attention_of(Service& service);
};

}  // namespace kiln
