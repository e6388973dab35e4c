#include "ops/run.h"

#include <cstddef>
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
  std::vector<Launched> all;
  for (Launch& launch : plan) {
    Kernel kernel = KILN_TRY(kernel_of(service, device, launch));
    const Geometry geometry = KILN_TRY(kernel.geometry(launch.extents));
    all.push_back({std::move(kernel), geometry});
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    KILN_TRY(all[i].kernel.launch_with(all[i].geometry, stream,
                                       plan[i].arguments.addresses(),
                                       plan[i].arguments.sizes_bytes()));
  if (launched != nullptr)
    *launched = std::move(all);
  return {};
}

Result<void> fetch(Service& service, const Device& device, Launches plan) {
  for (Launch& launch : plan) KILN_TRY(kernel_of(service, device, launch));
  return {};
}

}  // namespace kiln::ops
