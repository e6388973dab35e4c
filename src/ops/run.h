// Operations on a service: a plan's kernels fetched and launched. Kernels come through
// the same door as everybody's, Service::get().

#pragma once

#include <string_view>

#include "kiln/device.h"
#include "kiln/kernel.h"
#include "kiln/result.h"
#include "kiln/service.h"
#include "library/public_border.h"
#include "ops/on_device.h"
#include "ops/plan.h"
#include "util/try.h"

namespace kiln::ops {

/// Starts the plan's launches in `stream`, which is of `device`; a null one is of the
/// context that is current.
[[nodiscard]] Result<void> run(Service& service, const Device& device,
                               CUstream_st* stream, const Launches& plan);

/// Fetches its kernels.
[[nodiscard]] Result<void> fetch(Service& service, const Device& device,
                                 const Launches& plan);

/// The body of every operation: arguments are checked before a kernel is looked for.
template <typename Args>
[[nodiscard]] Result<void> run_operation(Service& service, const Device& device,
                                         CUstream_st* stream, const Args& args) {
  return at_border([&]() -> Result<void> {
    const Launches launches = KILN_TRY(plan(args, device, Pointers::kChecked));
    const std::string_view what =
        launches.empty() ? "an operation of nothing" : launches.front().kernel.c_str();
    return on_device(service, {what, device, stream},
                     [&] { return run(service, device, stream, launches); });
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
