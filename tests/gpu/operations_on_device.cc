#include "tests/gpu/operations_on_device.h"

#include <stdexcept>

#include "ops/operation_table.h"
#include "tests/gpu/device_copies.h"
#include "tests/support/operations/run_operation.h"

namespace kiln::gpu_test {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
const OperationsOnDevice* current = nullptr;

/// The operation of each argument struct.
struct Start {
  Service& service;
  const Device& device;
  CUstream stream;

#define KILN_START(function, Args)                       \
  Result<void> operator()(const ops::Args& args) const { \
    return ops::function(service, device, stream, args); \
  }
  KILN_EACH_OPERATION(KILN_START)
#undef KILN_START
};

}  // namespace

OperationsOnDevice::OperationsOnDevice(Service& service, const Device& device)
    : service_(service), device_(device), scope_(device.ordinal) {
  if (current != nullptr)
    throw std::logic_error("an OperationsOnDevice within another");
  current = this;
}

const OperationsOnDevice& OperationsOnDevice::of_test() {
  if (current == nullptr)
    throw std::logic_error("an operation outside of OperationsOnDevice");
  return *current;
}

OperationsOnDevice::~OperationsOnDevice() {
  current = nullptr;
}

}  // namespace kiln::gpu_test

namespace kiln::test {

Device operations_device(const Schedule& /*schedule*/) {
  return gpu_test::OperationsOnDevice::of_test().device();
}

Result<void> run_operation(const Operation& operation, const Schedule& /*schedule*/) {
  const gpu_test::OperationsOnDevice& on = gpu_test::OperationsOnDevice::of_test();
  return std::visit(
      [&](const auto& args) -> Result<void> {
        const gpu_test::DeviceCopies copies;
        auto done = gpu_test::Start{on.service(), on.device(),
                                    on.stream().handle()}(copies.moved(args));
        on.stream().synchronize();
        copies.take_back();
        return done;
      },
      operation);
}

}  // namespace kiln::test
