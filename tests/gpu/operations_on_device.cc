#include "tests/gpu/operations_on_device.h"

#include <stdexcept>

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

  Result<void> operator()(const ops::RopeForward& args) const {
    return ops::rope_forward(service, device, stream, args);
  }
  Result<void> operator()(const ops::RopeBackward& args) const {
    return ops::rope_backward(service, device, stream, args);
  }
  Result<void> operator()(const ops::LayerNormForward& args) const {
    return ops::layernorm_forward(service, device, stream, args);
  }
  Result<void> operator()(const ops::LayerNormBackward& args) const {
    return ops::layernorm_backward(service, device, stream, args);
  }
  Result<void> operator()(const ops::RmsNormForward& args) const {
    return ops::rmsnorm_forward(service, device, stream, args);
  }
  Result<void> operator()(const ops::RmsNormBackward& args) const {
    return ops::rmsnorm_backward(service, device, stream, args);
  }
  Result<void> operator()(const ops::ActivationForward& args) const {
    return ops::activation_forward(service, device, stream, args);
  }
  Result<void> operator()(const ops::ActivationBackward& args) const {
    return ops::activation_backward(service, device, stream, args);
  }
  Result<void> operator()(const ops::GluForward& args) const {
    return ops::glu_forward(service, device, stream, args);
  }
  Result<void> operator()(const ops::GluBackward& args) const {
    return ops::glu_backward(service, device, stream, args);
  }
  Result<void> operator()(const ops::CrossEntropy& args) const {
    return ops::cross_entropy(service, device, stream, args);
  }
  Result<void> operator()(const ops::CrossEntropyForward& args) const {
    return ops::cross_entropy_forward(service, device, stream, args);
  }
  Result<void> operator()(const ops::CrossEntropyBackward& args) const {
    return ops::cross_entropy_backward(service, device, stream, args);
  }
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
