// Runs operations on a service: fetches and launches a plan's kernels, which come from
// the public Service::get().

#pragma once

#include <utility>

#include "kiln/device.h"
#include "kiln/kernel.h"
#include "kiln/result.h"
#include "kiln/service.h"
#include "library/public_border.h"
#include "ops/on_device.h"
#include "ops/plan.h"
#include "util/try.h"

namespace kiln::ops {

/// Enqueues the plan's launches in `stream`, a stream of `device`. A null stream
/// belongs to the current context.
[[nodiscard]] Result<void> run(Service& service, const Device& device,
                               CUstream_st* stream, Launches plan);

/// Fetches the plan's kernels.
[[nodiscard]] Result<void> fetch(Service& service, const Device& device, Launches plan);

/// The body of every operation. Arguments are checked before any kernel is fetched.
template <typename Args>
[[nodiscard]] Result<void> run_operation(Service& service, const Place& place,
                                         const Args& args) {
  return at_border([&]() -> Result<void> {
    Launches launches = KILN_TRY(plan(args, place.device, Pointers::kChecked));
    return on_device(service, place, [&] {
      return run(service, place.device, place.stream, std::move(launches));
    });
  });
}

/// The body of every prepare().
template <typename Args>
[[nodiscard]] Result<void> prepare_operation(Service& service, const Device& device,
                                             const Args& args) {
  return at_border([&]() -> Result<void> {
    return fetch(service, device, KILN_TRY(plan(args, device)));
  });
}

}  // namespace kiln::ops
