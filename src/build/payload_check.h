// What the cache cannot know of its payloads: that an image, or every kernel in a plan,
// is built for the target its object states, and has the entry points it states.

#pragma once

#include "cache/object.h"
#include "device/architecture.h"
#include "kiln/result.h"

namespace kiln {

/// The target that an object states: "sm_90a" or "compute_90". Errors: kCorrupt.
[[nodiscard]] Result<device::Target> target_of(const cache::StoredObject& object);

/// The cache's PayloadCheck: made on every hit, before anybody sees the payload.
/// Errors: kCorrupt, naming what disagrees. Thread-safe.
[[nodiscard]] Result<void> check_stored_payload(const cache::StoredObject& object);

}  // namespace kiln
