// What the definitions of the driver's functions begin with. They are in the global
// namespace, where cuda.h declares them; so are, in their files alone, the names that
// most of them use.

#pragma once

#include "tests/support/simulated_driver/simulator.h"

using kiln::simulated::address_of;
using kiln::simulated::Allocation;
using kiln::simulated::Capability;
using kiln::simulated::Capture;
using kiln::simulated::ChildWork;
using kiln::simulated::Context;
using kiln::simulated::Device;
using kiln::simulated::DeviceModel;
using kiln::simulated::EmptyWork;
using kiln::simulated::enter;
using kiln::simulated::Event;
using kiln::simulated::EventWork;
using kiln::simulated::Front;
using kiln::simulated::Function;
using kiln::simulated::FunctionSettings;
using kiln::simulated::Graph;
using kiln::simulated::GraphExec;
using kiln::simulated::GraphNode;
using kiln::simulated::HostWork;
using kiln::simulated::Image;
using kiln::simulated::KernelWork;
using kiln::simulated::Library;
using kiln::simulated::MemoryKind;
using kiln::simulated::MemoryWork;
using kiln::simulated::Module;
using kiln::simulated::Needs;
using kiln::simulated::pointer_to;
using kiln::simulated::Pool;
using kiln::simulated::Request;
using kiln::simulated::Simulator;
using kiln::simulated::Step;
using kiln::simulated::Stream;
using kiln::simulated::UserObject;
using kiln::simulated::Work;

/// `use(simulator, found)` for what a handle stands for; `missing` where it is stale.
template <typename Find, typename Use>
CUresult with(const char* symbol, Needs needs, CUresult missing, const Find& find,
              const Use& use) {
  return enter(symbol, needs, [&](Simulator& simulator) {
    auto* const found = find(simulator);
    return found == nullptr ? missing : use(simulator, *found);
  });
}

/// The same for a device.
template <typename Use>
CUresult with_device(const char* symbol, CUdevice ordinal, const Use& use) {
  return with(
      symbol, Needs::kDriver, CUDA_ERROR_INVALID_DEVICE,
      [&](Simulator& simulator) { return simulator.device(ordinal); }, use);
}

/// `value` into `out`, where the program gave a place for it.
template <typename Value, typename Given>
CUresult answer(Value* out, const Given& value) {
  if (out == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  *out = value;
  return CUDA_SUCCESS;
}
