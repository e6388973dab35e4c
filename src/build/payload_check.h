// Payload checks that the cache cannot do: an image, or every kernel in a plan, is for
// the target that its object states, and has the entry points that it states.

#pragma once

#include "cache/object.h"
#include "device/architecture.h"
#include "kiln/result.h"

namespace kiln {

/// The target that an object states: "sm_90a" or "compute_90". Errors: kCorrupt.
[[nodiscard]] Result<device::Target> target_of(const cache::StoredObject& object);

/// The cache's PayloadCheck: runs on every hit, before a caller gets the payload.
/// Errors: kCorrupt, naming the mismatch. Thread-safe.
[[nodiscard]] Result<void> check_stored_payload(const cache::StoredObject& object);

}  // namespace kiln
