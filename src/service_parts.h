// What the library's own operations need of a service beside its kernels.

#pragma once

#include "attention_calls.h"
#include "kiln/service.h"

namespace kiln {

struct ServiceParts {
  [[nodiscard]] static AttentionCalls& attention_of(Service& service);
};

}  // namespace kiln
