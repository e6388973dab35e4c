#include "ops/run.h"

#include <utility>

#include "util/try.h"

namespace kiln::ops {
namespace {

/// Takes the launch's name and parameters.
Result<Kernel> kernel_of(Service& service, const Device& device, Launch& launch) {
  Kernel kernel = KILN_TRY(
      service.get({std::move(launch.kernel), std::move(launch.parameters)}, device));
  return launch.entry.empty() ? std::move(kernel) : kernel.entry(launch.entry);
}

}  // namespace

Result<void> run(Service& service, const Device& device, CUstream_st* stream,
                 Launches plan, std::vector<Launched>* launched) {
  for (Launch& launch : plan) {
    Kernel kernel = KILN_TRY(kernel_of(service, device, launch));
    const Geometry geometry = KILN_TRY(kernel.geometry(launch.extents));
    const std::vector<void*> addresses = launch.arguments.addresses();
    KILN_TRY(kernel.launch_with(geometry, stream, addresses,
                                launch.arguments.sizes_bytes()));
    if (launched != nullptr)
      launched->push_back({std::move(kernel), geometry});
  }
  return {};
}

Result<void> fetch(Service& service, const Device& device, Launches plan) {
  for (Launch& launch : plan) KILN_TRY(kernel_of(service, device, launch));
  return {};
}

}  // namespace kiln::ops
