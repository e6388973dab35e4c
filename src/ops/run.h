// Runs operations on a service: fetches and launches a plan's kernels, which come from
// the public Service::get().

#pragma once

#include <vector>

#include "kiln/device.h"
#include "kiln/geometry.h"
#include "kiln/kernel.h"
#include "kiln/result.h"
#include "kiln/service.h"
#include "ops/plan.h"

namespace kiln::ops {

/// What a launch of a plan was made with.
struct Launched {
  Kernel kernel;
  Geometry geometry;
};

/// Enqueues the plan's launches in `stream`, a stream of `device`: all, or none if a
/// kernel is not to be had. A null stream belongs to the current context. `launched`,
/// if it is not null, gets them.
[[nodiscard]] Result<void> run(Service& service, const Device& device,
                               CUstream_st* stream, Launches plan,
                               std::vector<Launched>* launched = nullptr);

/// Fetches the plan's kernels.
[[nodiscard]] Result<void> fetch(Service& service, const Device& device, Launches plan);

}  // namespace kiln::ops
